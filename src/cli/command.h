// Commands and their options, as the files of the commands declare them. The parser behind it is CLI11; only
// command.cpp includes it, because its header takes longer to compile than a command does.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ingot {

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option& required();
  Option& shown_default(const std::string&);
  Option& value_name(const std::string&);
  Option& one_of(const std::vector<std::string>&);
  template <class T>  // int, double
  Option& between(T least, T most);
  Option& positive();
  Option& separated_by(char);
  Option& excludes(const std::string& other);

 private:
  CLI::Option* option_;
};

class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}
  Command subcommand(const std::string& name, const std::string& help);
  // One of its subcommands must be named.
  void needs_subcommand();
  // `value` must live as long as the program; it is set before the callback runs. T: std::string, int, int64_t,
  // uint64_t, double, a vector or an optional of some of them.
  template <class T>
  Option option(const std::string& names, T& value, const std::string& help);
  Option flag(const std::string& names, bool& value, const std::string& help);
  Option flag(const std::string& names, const std::function<void()>& when_given, const std::string& help);
  // Options of which one at most may be given.
  Command alternatives(const std::string& title);
  void callback(const std::function<void()>&);
  // Instead of options: all that follows the command's name, `--help` too, for someone else to parse.
  void callback_with_words(const std::function<void(const std::vector<std::string>&)>&);

 private:
  CLI::App* app_;
};

// Parses the command line of a program with the subcommands that `declare` adds, and runs the callback of the one that
// is named. What main returns: 0, or 2 for wrong usage, which is printed.
int run_command_line(int argc, char** argv, const std::string& about, const std::string& footer,
                     void (*declare)(Command&));

}  // namespace ingot
