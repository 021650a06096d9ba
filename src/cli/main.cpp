// `ingot`: the command line. Data goes to stdout, everything else to stderr; errors end with a hint.
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <exception>
#include <new>
#include <system_error>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "compiler/kernel_store.h"

namespace {

constexpr const char* kAbout = "Ingot turns models into small, fast, self-contained CPU programs.";
constexpr const char* kFooter =
    "Exit codes: 0 ok, 1 internal error, 2 wrong usage, 3 invalid model, 4 not supported, 5 invalid input,\n"
    "6 a file cannot be read or written, 7 out of memory or threads, 8 not done in time, 9 cancelled.";

void declare(ingot::Command& program) {
  ingot::add_compile(program);
  ingot::add_run(program);
  ingot::add_bench(program);
  ingot::add_inspect(program);
  ingot::add_quantize(program);
  ingot::add_convert(program);
  ingot::add_export(program);
  ingot::add_cache(program);
  ingot::add_version(program);
}

int report(const ingot::Error& e) {
  const char* general = e.kind() == ingot::ErrorKind::Internal
                            ? "this is a fault of Ingot: please report it with the model"
                            : "ingot inspect MODEL shows what a model expects";
  ingot::print_error(e.message(), e.hint().empty() ? general : e.hint());
  return ingot::exit_code(e.kind());
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  const struct AtEnd {
    ~AtEnd() { ingot::end_background_compiles(); }
  } at_end;
  try {
    const int code = ingot::run_command_line(argc, argv, kAbout, kFooter, declare);
    ingot::finish_output();
    return code;
  } catch (const ingot::Error& e) {
    return report(e);
  } catch (const std::bad_alloc&) {
    return report(ingot::out_of_memory());
  } catch (const std::system_error& e) {      // of fmt, when it cannot print
    if (e.code().value() == EPIPE) return 0;  // whoever reads has seen enough
    return report(ingot::Error(ingot::ErrorKind::Io, e.what()));
  } catch (const std::exception& e) {
    ingot::print_error(e.what(), "this is a fault of Ingot: please report it with the model");
    return 1;
  }
}
