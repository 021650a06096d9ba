// corpus FOLDER [NAME]: every file FOLDER/<target>/<file> through its target (targets.h). What ends it is named last.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/error.h"
#include "targets.h"

namespace {

using namespace ingot::fuzz;

constexpr struct {
  const char* name;
  void (*run)(Bytes);
} kTargets[] = {{"onnx", onnx},       {"ir", ir},       {"convert", convert}, {"npy", npy},
                {"library", library}, {"c_api", c_api}, {"options", options}, {"cache", cache}};

void run(void (*target)(Bytes), const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::fprintf(stderr, "%s\n", path.c_str());
  try {
    target({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  } catch (const ingot::Error& e) {
    if (e.kind() == ingot::ErrorKind::Internal) throw;
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  int files = 0;
  for (const auto& target : kTargets) {
    if (argc > 2 && std::strcmp(argv[2], target.name) != 0) continue;
    for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(argv[1]) / target.name)) {
      run(target.run, file.path());
      files++;
    }
  }
  std::fprintf(stderr, "%d files\n", files);
  return files > 0 ? 0 : 1;
}
