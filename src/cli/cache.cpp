// ingot cache: what the disk cache holds, whether it is whole, and a way to empty it.
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "compiler/cache.h"

namespace ingot {
namespace {

struct Options {
  std::string folder;
  bool json = false;
};

Cache open_cache(const Options& o) {
  Cache cache(o.folder);
  if (!cache.enabled())
    throw Error(ErrorKind::InvalidInput, "the cache is switched off, or its folder cannot be written",
                "unset INGOT_CACHE, or name a folder with --dir or INGOT_CACHE_DIR");
  return cache;
}

std::string time_text(int64_t nanoseconds) {
  const std::time_t seconds = nanoseconds / Cache::kSecond;
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &parts)};
}

const char* kind_of(const std::string& key) {
  if (key.ends_with(".o")) return "kernel";
  return key.starts_with("set-") ? "kernels of a model" : "library";
}

void list(const Options& o) {
  const Cache cache = open_cache(o);
  const auto entries = cache.entries();
  int64_t total = 0;
  for (const auto& e : entries) total += e.bytes;
  if (o.json) {
    nlohmann::ordered_json out = {
        {"folder", cache.folder()}, {"limit", cache.limit()}, {"bytes", total}, {"entries", nlohmann::json::array()}};
    for (const auto& e : entries)
      out["entries"].push_back(
          {{"key", e.key}, {"kind", kind_of(e.key)}, {"bytes", e.bytes}, {"used", e.used / Cache::kSecond}});
    fmt::print("{}\n", out.dump(2));
    return;
  }
  for (const auto& e : entries)
    fmt::print("{}  {:>10}  {:<18}  {}\n", time_text(e.used), human_bytes(e.bytes), kind_of(e.key), e.key);
  print_note(fmt::format("{}: {} entries, {} of at most {}", cache.folder(), entries.size(), human_bytes(total),
                         human_bytes(cache.limit())));
}

void clear(const Options& o) {
  const Cache cache = open_cache(o);
  size_t count = 0;
  int64_t bytes = 0;
  for (const auto& e : cache.entries())
    if (cache.remove(e.key)) {
      count++;
      bytes += e.bytes;
    }
  print_note(fmt::format("{}: removed {} entries, {}", cache.folder(), count, human_bytes(bytes)));
}

void verify_all(const Options& o) {
  const Cache cache = open_cache(o);
  const auto entries = cache.entries();
  size_t damaged = 0;
  for (const auto& e : entries) {
    if (cache.whole(e.key)) continue;
    fmt::print("damaged: {}\n", e.key);
    cache.remove(e.key);
    damaged++;
  }
  print_note(fmt::format("{}: {} entries, {} damaged{}", cache.folder(), entries.size(), damaged,
                         damaged ? " and removed; they are made again when needed" : ""));
}

}  // namespace

void add_cache(Command& app) {
  Command command = app.subcommand("cache", "List, empty or verify the disk cache of compiled code");
  command.needs_subcommand();
  auto options = std::make_shared<Options>();
  auto add = [&](const char* name, const char* what, void (*run)(const Options&)) {
    Command sub = command.subcommand(name, what);
    sub.option("--dir", options->folder, "the cache's folder, if not the usual one");
    sub.callback([options, run] { run(*options); });
    return sub;
  };
  add("list", "what is in it, used last first", list).flag("--json", options->json, "print JSON");
  add("clear", "remove all entries", clear);
  add("verify", "check every entry's checksum; damaged ones are named on stdout and removed", verify_all);
}

}  // namespace ingot
