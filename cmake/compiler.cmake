# Everything that is not needed at run time, as the static library ingot_core: loaders, passes, fusions, emitter, code
# generator, with LLVM, lld, the kernels' bitcode and the runtime object inside.
ingot_registry(fusions ${SRC}/fusions FusionRegistry matcher/fusion.h)
ingot_registry(expansions ${SRC}/expansions ExpansionRegistry expansions/expander.h)

file(GLOB COMPILER_SOURCES CONFIGURE_DEPENDS ${SRC}/loader/*.cpp ${SRC}/extractors/*.cpp ${SRC}/passes/*.cpp
     ${SRC}/expansions/*.cpp ${SRC}/matcher/*.cpp ${SRC}/fusions/*.cpp ${SRC}/emitter/*.cpp ${SRC}/compiler/*.cpp
     ${SRC}/writer/*.cpp ${SRC}/quantizer/*.cpp)
add_custom_command(OUTPUT ${GENERATED}/schema_table.cpp DEPENDS ${CMAKE_SOURCE_DIR}/cmake/schema_table.py VERBATIM
  COMMAND ${Python_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/schema_table.py ${GENERATED}/schema_table.cpp)
list(APPEND COMPILER_SOURCES ${GENERATED}/schema_table.cpp)
file(GLOB CODEGEN_SOURCES CONFIGURE_DEPENDS ${SRC}/codegen/*.cpp)

# Binary files become arrays through #embed.
set(embedded ${CMAKE_BINARY_DIR}/generated/embedded.cpp)
set(content "// generated\n#include <cstddef>\n#include \"codegen/embedded.h\"\nnamespace ingot {\n")
function(embed symbol path)
  string(APPEND content "extern const unsigned char ${symbol}[] __attribute__((aligned(64)));\nextern const size_t ${symbol}_size;\nconst unsigned char ${symbol}[] = {\n#embed \"${path}\"\n};\nconst size_t ${symbol}_size = sizeof(${symbol});\n")
  set(content "${content}" PARENT_SCOPE)
endfunction()
embed(runtime_object ${INGOT_RUNTIME_OBJECT})
# embed_builds(FUNCTION PATHS...): a function that returns the files, one for each build.
function(embed_builds function)
  set(files "")
  foreach(build path IN ZIP_LISTS INGOT_BUILDS ARGN)
    set(symbol ${function}_${build})
    embed(${symbol} ${path})
    string(APPEND files "std::string_view(reinterpret_cast<const char*>(${symbol}), ${symbol}_size), ")
  endforeach()
  set(content "${content}std::array<std::string_view, kBuilds> ${function}() { return {${files}}; }\n" PARENT_SCOPE)
endfunction()
embed_builds(kernel_bitcode ${INGOT_KERNEL_BITCODE})
embed_builds(native_kernels ${INGOT_SHIPPED_KERNELS})
embed_builds(absent_kernels ${INGOT_ABSENT_KERNELS})
string(APPEND content "}\n")
file(CONFIGURE OUTPUT ${embedded} CONTENT "${content}" @ONLY)
set_source_files_properties(${embedded} PROPERTIES OBJECT_DEPENDS "${INGOT_KERNEL_BITCODE};${INGOT_SHIPPED_KERNELS};${INGOT_ABSENT_KERNELS};${INGOT_RUNTIME_OBJECT}"
  COMPILE_OPTIONS "-Wno-c23-extensions")

# ccache does not see what #embed reads.
add_library(ingot_embedded OBJECT ${embedded})
set_target_properties(ingot_embedded PROPERTIES CXX_COMPILER_LAUNCHER "")

add_library(ingot_codegen OBJECT ${CODEGEN_SOURCES})
target_include_directories(ingot_codegen SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS})
target_compile_options(ingot_codegen PRIVATE -fno-rtti)
# What the code generator is decides what cached kernels are worth.
set(codegen_text "")
foreach(source ${CODEGEN_SOURCES})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(SHA256 ${source} source_hash)
  string(APPEND codegen_text ${source_hash})
endforeach()
string(SHA256 codegen_hash "${codegen_text}")
set_source_files_properties(${SRC}/codegen/request.cpp PROPERTIES COMPILE_DEFINITIONS INGOT_CODEGEN_HASH="${codegen_hash}")

add_library(ingot_core STATIC ${COMPILER_SOURCES} ${GENERATED}/fusions_registry.cpp
  ${GENERATED}/expansions_registry.cpp ${GENERATED}/ops_registry.cpp $<TARGET_OBJECTS:ingot_embedded>
  $<TARGET_OBJECTS:ingot_codegen> $<FILTER:$<TARGET_OBJECTS:ingot_runtime>,EXCLUDE,[.]pch$> $<TARGET_OBJECTS:ingot_kernel_table> ${INGOT_KERNEL_OBJECTS})
target_precompile_headers(ingot_core PRIVATE <algorithm> <map> <memory> <string> <vector> ${SRC}/ops/op.h)
set_source_files_properties(${INGOT_KERNEL_OBJECTS} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
add_dependencies(ingot_core ingot_native_kernels)
target_link_libraries(ingot_core PUBLIC ingot_onnx_schema)

llvm_map_components_to_libnames(LLVM_LIBS core support bitreader bitwriter linker ipo passes target x86codegen x86desc x86info
  x86asmparser asmparser object lto option windowsdriver windowsmanifest debuginfodwarf targetparser)
target_link_libraries(ingot_core PUBLIC
  /usr/lib/llvm-22/lib/liblldELF.a /usr/lib/llvm-22/lib/liblldCommon.a ${LLVM_LIBS} LLVMDTLTO LLVMLTO ${INGOT_YAML} z zstd pthread dl)
# yaml-cpp of Debian is not position independent towards the C++ library: it is linked statically with it.
# LLVM names libraries (libxml2, libz3) that only parts of it need which are not in use here: --as-needed.
target_link_options(ingot_core PUBLIC -Wl,--as-needed -Wl,--gc-sections -static-libgcc)
if(NOT INGOT_SANITIZERS)  # they must replace malloc and free in shared libraries too
  target_link_options(ingot_core PUBLIC -Wl,--exclude-libs,ALL -static-libstdc++)
endif()
