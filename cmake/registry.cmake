# A folder as a registry: every <file>.cpp defines `void register_<file>(ARGUMENT)`; this generates
# <name>_registry.h/.cpp with `register_all_<name>`, which calls them all.
function(ingot_registry name folder argument header)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/*.cpp)
  set(declarations "")
  set(calls "")
  foreach(file ${files})
    file(STRINGS ${file} found REGEX "^void register_[a-z0-9_]+\\(")
    foreach(line ${found})
      string(REGEX MATCH "register_[a-z0-9_]+" fn "${line}")
      string(APPEND declarations "void ${fn}(${argument});\n")
      string(APPEND calls "  ${fn}(registry);\n")
    endforeach()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()
  set(GEN ${CMAKE_BINARY_DIR}/generated)
  file(CONFIGURE OUTPUT ${GEN}/${name}_registry.h CONTENT
    "#pragma once\n#include \"${header}\"\nnamespace ingot {\nvoid register_all_${name}(${argument});\n}\n")
  file(CONFIGURE OUTPUT ${GEN}/${name}_registry.cpp CONTENT
    "#include \"${name}_registry.h\"\nnamespace ingot {\n${declarations}void register_all_${name}(${argument} registry) {\n${calls}}\n}\n")
endfunction()
