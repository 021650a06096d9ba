# A folder as a registry: every <file>.cpp defines `void register_<file>(CLASS&)` in namespace ingot. This generates
# <name>_registry.cpp with the null-terminated arrays
#   ingot_<name>_registrars         the functions
#   ingot_<name>_registrar_symbols  their names for a linker
function(ingot_registry name folder class header)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/*.cpp)
  set(declarations "")
  set(functions "")
  set(symbols "")
  string(LENGTH ${class} class_length)
  foreach(file ${files})
    file(STRINGS ${file} found REGEX "^void register_[a-z0-9_]+\\(")
    foreach(line ${found})
      string(REGEX MATCH "register_[a-z0-9_]+" fn "${line}")
      string(LENGTH ${fn} length)
      string(APPEND declarations "void ${fn}(${class}&);\n")
      string(APPEND functions "    ${fn},\n")
      string(APPEND symbols "    \"_ZN5ingot${length}${fn}ERNS_${class_length}${class}E\",\n")
    endforeach()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/${name}_registry.cpp CONTENT
    "#include \"${header}\"\n\nnamespace ingot {\n\n${declarations}
extern \"C\" void (*const ingot_${name}_registrars[])(${class}&) = {\n${functions}    nullptr,\n};
extern \"C\" const char* const ingot_${name}_registrar_symbols[] = {\n${symbols}    nullptr,\n};\n\n}  // namespace ingot\n")
endfunction()
