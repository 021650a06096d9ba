// `ingot`: the command line. Data goes to stdout, everything else to stderr; errors end with a hint.
#include <unistd.h>

#include <csignal>
#include <exception>
#include <new>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/terminal.h"

namespace {

constexpr const char* kFooter =
    "Exit codes: 0 ok, 1 internal error, 2 wrong usage, 3 invalid model, 4 not supported, 5 invalid input,\n"
    "6 a file cannot be read or written.";

int run(int argc, char** argv) {
  CLI::App app("Ingot turns models into small, fast, self-contained CPU programs.", "ingot");
  app.require_subcommand(1);
  app.footer(kFooter);
  app.set_help_all_flag("--help-all", "the options of all commands");
  ingot::add_compile(app);
  ingot::add_run(app);
  ingot::add_bench(app);
  ingot::add_inspect(app);
  ingot::add_quantize(app);
  ingot::add_convert(app);
  ingot::add_export(app);
  ingot::add_cache(app);
  ingot::add_version(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    ingot::print_error(e.what(), "ingot --help-all lists the commands and their options");
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return run(argc, argv);
  } catch (const ingot::Error& e) {
    const char* general = e.kind() == ingot::ErrorKind::Internal
                              ? "this is a fault of Ingot: please report it with the model"
                              : "ingot inspect MODEL shows what a model expects";
    ingot::print_error(e.message(), e.hint().empty() ? general : e.hint());
    return ingot::exit_code(e.kind());
  } catch (const std::bad_alloc&) {
    ingot::print_error("out of memory", "smaller shapes or fewer threads need less");
    return 1;
  } catch (const std::exception& e) {
    ingot::print_error(e.what(), "this is a fault of Ingot: please report it with the model");
    return 1;
  }
}
