#include "cli/command.h"

#include <CLI/CLI.hpp>
#include <optional>

#include "cli/terminal.h"
#include "cli/version.h"

namespace ingot {

Option& Option::required() { return option_->required(), *this; }
Option& Option::shown_default(const std::string& text) { return option_->default_str(text), *this; }
Option& Option::value_name(const std::string& name) { return option_->type_name(name), *this; }
Option& Option::one_of(const std::vector<std::string>& words) { return option_->check(CLI::IsMember(words)), *this; }
Option& Option::positive() { return option_->check(CLI::PositiveNumber), *this; }
Option& Option::separated_by(char c) { return option_->delimiter(c), *this; }
Option& Option::excludes(const std::string& other) { return option_->excludes(other), *this; }

template <class T>
Option& Option::between(T least, T most) {
  return option_->check(CLI::Range(least, most)), *this;
}
template Option& Option::between(int, int);
template Option& Option::between(double, double);

Command Command::subcommand(const std::string& name, const std::string& help) {
  return Command(app_->add_subcommand(name, help));
}

void Command::needs_subcommand() { app_->require_subcommand(1); }

template <class T>
Option Command::option(const std::string& names, T& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}
template Option Command::option(const std::string&, std::string&, const std::string&);
template Option Command::option(const std::string&, int&, const std::string&);
template Option Command::option(const std::string&, int64_t&, const std::string&);
template Option Command::option(const std::string&, uint64_t&, const std::string&);
template Option Command::option(const std::string&, double&, const std::string&);
template Option Command::option(const std::string&, std::optional<int64_t>&, const std::string&);
template Option Command::option(const std::string&, std::optional<double>&, const std::string&);
template Option Command::option(const std::string&, std::vector<int>&, const std::string&);
template Option Command::option(const std::string&, std::vector<std::string>&, const std::string&);

Option Command::flag(const std::string& names, bool& value, const std::string& help) {
  return Option(app_->add_flag(names, value, help));
}

Option Command::flag(const std::string& names, const std::function<void()>& when_given, const std::string& help) {
  return Option(app_->add_flag_callback(names, when_given, help));
}

Command Command::alternatives(const std::string& title) {
  CLI::Option_group* group = app_->add_option_group(title);
  group->require_option(0, 1);
  return Command(group);
}

void Command::callback(const std::function<void()>& work) { app_->callback(work); }

void Command::callback_with_words(const std::function<void(const std::vector<std::string>&)>& work) {
  app_->prefix_command();
  app_->set_help_flag();
  app_->callback([app = app_, work] { work(app->remaining()); });
}

int run_command_line(int argc, char** argv, const std::string& about, const std::string& footer,
                     void (*declare)(Command&)) {
  CLI::App app(about, "ingot");
  app.footer(footer);
  app.set_version_flag("--version", std::string("ingot ") + kVersion, "print the version");
  app.set_help_all_flag("--help-all", "the options of all commands");
  Command program(&app);
  program.needs_subcommand();
  declare(program);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    print_error(e.what(), "ingot --help-all lists the commands and their options");
    return 2;
  }
  return 0;
}

}  // namespace ingot
