// Object files that hold no code: data sections and function tables.
#include <elf.h>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "codegen/codegen.h"

namespace ingot {
namespace {

struct Section {
  std::string name;
  Elf64_Word type;
  Elf64_Xword flags;
  Elf64_Xword align;
  std::string_view bytes;  // or, for what is not in one piece:
  Elf64_Word link = 0, info = 0;
  Elf64_Xword entry = 0;
  const WeightSink* weights = nullptr;

  uint64_t size() const { return weights ? static_cast<uint64_t>(weights->size()) : bytes.size(); }
};

class Strings {
 public:
  Elf64_Word add(const std::string& s) {
    auto at = static_cast<Elf64_Word>(text_.size());
    text_ += s + '\0';
    return at;
  }
  std::string_view bytes() const { return text_; }

 private:
  std::string text_ = std::string(1, '\0');
};

void pad(std::ostream& out, uint64_t& at, uint64_t align) {
  static const char zeros[64] = {};
  while (at % align) {
    uint64_t n = std::min<uint64_t>(align - at % align, sizeof zeros);
    out.write(zeros, static_cast<std::streamsize>(n));
    at += n;
  }
}

void write_weights(std::ostream& out, const WeightSink& weights) {
  uint64_t at = 0;
  for (const auto& part : weights.sections()) {
    pad(out, at, 64);
    out.write(reinterpret_cast<const char*>(part.bytes.data()), static_cast<std::streamsize>(part.bytes.size()));
    at += part.bytes.size();
  }
  static const char zero = 0;
  for (; at < static_cast<uint64_t>(weights.size()); at++) out.write(&zero, 1);
}

std::string_view view(const void* p, size_t n) { return {static_cast<const char*>(p), n}; }

// A relocatable ELF file: header, the sections' bytes, the section table.
void write_elf(std::ostream& out, std::vector<Section>& sections) {
  Strings names;
  std::vector<Elf64_Word> name_at;
  for (const Section& s : sections) name_at.push_back(names.add(s.name));
  const Elf64_Word own_name = names.add(".shstrtab");
  sections.push_back({".shstrtab", SHT_STRTAB, 0, 1, names.bytes()});
  name_at.push_back(own_name);

  uint64_t offset = sizeof(Elf64_Ehdr);
  std::vector<Elf64_Shdr> table(1, Elf64_Shdr{});
  for (size_t i = 0; i < sections.size(); i++) {
    const Section& s = sections[i];
    offset = (offset + s.align - 1) / s.align * s.align;
    table.push_back({name_at[i], s.type, s.flags, 0, offset, s.size(), s.link, s.info, s.align, s.entry});
    offset += s.size();
  }
  Elf64_Ehdr h{};
  std::memcpy(h.e_ident, ELFMAG, SELFMAG);
  h.e_ident[EI_CLASS] = ELFCLASS64;
  h.e_ident[EI_DATA] = ELFDATA2LSB;
  h.e_ident[EI_VERSION] = EV_CURRENT;
  h.e_type = ET_REL;
  h.e_machine = EM_X86_64;
  h.e_version = EV_CURRENT;
  h.e_shoff = (offset + 7) / 8 * 8;
  h.e_ehsize = sizeof h;
  h.e_shentsize = sizeof(Elf64_Shdr);
  h.e_shnum = static_cast<Elf64_Half>(table.size());
  h.e_shstrndx = static_cast<Elf64_Half>(table.size() - 1);

  uint64_t at = sizeof h;
  out.write(reinterpret_cast<const char*>(&h), sizeof h);
  for (const Section& s : sections) {
    pad(out, at, s.align);
    if (s.weights)
      write_weights(out, *s.weights);
    else
      out.write(s.bytes.data(), static_cast<std::streamsize>(s.bytes.size()));
    at += s.size();
  }
  pad(out, at, 8);
  out.write(reinterpret_cast<const char*>(table.data()),
            static_cast<std::streamsize>(table.size() * sizeof(Elf64_Shdr)));
}

Elf64_Sym global(Elf64_Word name, Elf64_Half section, Elf64_Addr value) {
  return {name, ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), STV_DEFAULT, section, value, 0};
}

void write_object(const std::string& path, std::vector<Section> sections) {
  std::ofstream out(path, std::ios::binary);
  write_elf(out, sections);
  out.flush();
  if (!out) fail(ErrorKind::Io, "cannot write {}: {}", path, std::strerror(errno));
}

// One section between `symbol` and `symbol`_end.
void write_data(const std::string& path, const std::string& symbol, Section data) {
  Strings strings;
  const Elf64_Word start = strings.add(symbol), end = strings.add(symbol + "_end");
  const Elf64_Sym symbols[] = {{}, global(start, 1, 0), global(end, 1, data.size())};
  write_object(path, {data,
                      {".symtab", SHT_SYMTAB, 0, 8, view(symbols, sizeof symbols), 3, 1, sizeof(Elf64_Sym)},
                      {".strtab", SHT_STRTAB, 0, 1, strings.bytes()},
                      {".note.GNU-stack", SHT_PROGBITS, 0, 1, {}}});
}

}  // namespace

void write_data_object(const std::string& path, const std::string& symbol, std::string_view bytes) {
  write_data(path, symbol, {"." + symbol, SHT_PROGBITS, SHF_ALLOC, 64, bytes});
}

void write_data_object(const std::string& path, const std::string& symbol, const WeightSink& weights) {
  Section data{"." + symbol, SHT_PROGBITS, SHF_ALLOC, 64, {}};
  data.weights = &weights;
  write_data(path, symbol, data);
}

void write_table_object(const std::string& path, const std::string& symbol, const std::vector<std::string>& functions) {
  Strings strings;
  std::vector<Elf64_Sym> symbols(1, Elf64_Sym{});
  symbols.push_back(global(strings.add(symbol), 1, 0));
  std::vector<Elf64_Rela> relocations;
  for (size_t i = 0; i < functions.size(); i++) {
    symbols.push_back({strings.add(functions[i]), ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE), STV_DEFAULT, SHN_UNDEF, 0, 0});
    relocations.push_back({8 * i, ELF64_R_INFO(2 + i, R_X86_64_64), 0});
  }
  const std::string zeros(8 * functions.size() + 8, '\0');
  write_object(path, {{".data.rel.ro." + symbol, SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, 8, zeros},
                      {".rela.data.rel.ro." + symbol, SHT_RELA, SHF_INFO_LINK, 8,
                       view(relocations.data(), relocations.size() * sizeof(Elf64_Rela)), 3, 1, sizeof(Elf64_Rela)},
                      {".symtab", SHT_SYMTAB, 0, 8, view(symbols.data(), symbols.size() * sizeof(Elf64_Sym)), 4, 1,
                       sizeof(Elf64_Sym)},
                      {".strtab", SHT_STRTAB, 0, 1, strings.bytes()},
                      {".note.GNU-stack", SHT_PROGBITS, 0, 1, {}}});
}

}  // namespace ingot
