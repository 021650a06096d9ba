// ingot export: PyTorch files to ONNX. PyTorch lives in Python, so this command is `python -m ingot.exporter`.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "cli/commands.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

// The name this process was called by, found in PATH where it has no folder. Links are not followed: an environment has
// its own `ingot` and its own `python3`.
fs::path called_as() {
  std::ifstream command("/proc/self/cmdline");
  std::string name;
  std::getline(command, name, '\0');
  if (name.find('/') != std::string::npos) return name;
  std::istringstream folders(std::getenv("PATH") ? std::getenv("PATH") : "");
  std::error_code failed;
  for (std::string folder; std::getline(folders, folder, ':');)
    if (fs::exists(fs::path(folder) / name, failed)) return fs::path(folder) / name;
  return name;
}

// $INGOT_PYTHON, the interpreter beside this command, that of the active virtual environment, the one in PATH.
std::string interpreter() {
  if (const char* named = std::getenv("INGOT_PYTHON")) return named;
  std::error_code failed;
  const fs::path beside = called_as().parent_path() / "python3";
  if (beside.has_parent_path() && fs::exists(beside, failed)) return beside;
  if (const char* environment = std::getenv("VIRTUAL_ENV")) return std::string(environment) + "/bin/python3";
  return "python3";
}

void run(const std::vector<std::string>& given) {
  const std::string python = interpreter();
  std::vector<std::string> words{python, "-m", "ingot.exporter"};
  words.insert(words.end(), given.begin(), given.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  throw Error(ErrorKind::Io, fmt::format("{}: {}", python, std::strerror(errno)),
              "export needs Python with torch and ingot; INGOT_PYTHON names the interpreter");
}

}  // namespace

void add_export(Command& app) {
  Command c = app.subcommand("export", "Write a PyTorch file (.pt2 or TorchScript) as ONNX: fp32, bf16, fp16, int8");
  c.callback_with_words(run);  // the options and the help are Python's
}

}  // namespace ingot
