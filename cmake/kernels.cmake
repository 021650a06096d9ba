# The kernel sources, compiled for each build of src/base/targets.inc twice: to bitcode, which the code generator
# specialises, and natively. In the native object everything is local except the ingot_* functions, which get the build
# as a suffix; the generated table has a `Kernel` (kernels/abi.h) for each of them.
set(LLVM_BIN /usr/lib/llvm-22/bin)
set(targets ${CMAKE_SOURCE_DIR}/src/base/targets.inc)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${targets})
file(STRINGS ${targets} rows REGEX "^INGOT_BUILD")
foreach(row ${rows})
  string(REGEX MATCH "\\(([a-z0-9]+), \"([^\"]+)\".*\"([^\"]+)\"\\)" matched "${row}")
  list(APPEND INGOT_BUILDS ${CMAKE_MATCH_1})
  set(INGOT_MARCH_${CMAKE_MATCH_1} -march=${CMAKE_MATCH_2})
  set(INGOT_OPTIMISE_${CMAKE_MATCH_1} ${CMAKE_MATCH_3})
endforeach()
# Kernels that need more than their build: chosen only for a target that has it.
set(INGOT_MORE_v3 "gemm_i8_dot=-mavxvnni" "gemm_row_dot=-mavxvnni")
set(INGOT_MORE_v4 "gemm_i8_dot=-mavx512vnni" "gemm_row_dot=-mavx512vnni" "gemm_i8_tiles=-mavx512vnni -mamx-tile -mamx-int8"
    "gemm_bf16_dot=-mavx512bf16" "gemm_bf16_tiles=-mamx-tile -mamx-bf16")

function(ingot_kernels folder)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  file(GLOB headers CONFIGURE_DEPENDS ${folder}/*.h ${folder}/isa/*.h ${folder}/../graph/expr.h ${folder}/../base/*.h ${folder}/../base/targets.inc)
  set(out ${CMAKE_BINARY_DIR}/kernels)
  # Where the native kernels lie that go into a model.so: never those with sanitizers.
  set(shipped ${out})
  if(INGOT_PLAIN_BUILD)
    set(shipped ${INGOT_PLAIN_BUILD}/kernels)
  endif()
  # Integers wrap (-fwrapv). A product and a sum become one FMA only within one expression of the source, whatever is
  # inlined later (-ffp-contract=on): native and specialised kernels round alike.
  set(flags -std=c++20 -fPIC -fno-exceptions -fno-rtti -fwrapv -ffp-contract=on -fno-math-errno -fno-trapping-math
      -fvisibility=hidden -Wall -Wno-psabi -Wno-pass-failed -I${folder}/.. -I${CMAKE_BINARY_DIR}/generated)
  set(tidy "sroa,early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,simplifycfg")
  set(all_bitcode "")
  set(all_objects "")
  foreach(isa ${INGOT_BUILDS})
    list(APPEND natives ${out}/native_${isa}.o)
    list(APPEND made ${out}/native_${isa}.o ${out}/absent_${isa}.o)
    list(APPEND shipped_natives ${shipped}/native_${isa}.o)
    list(APPEND shipped_absent ${shipped}/absent_${isa}.o)
    set(bitcode "")
    set(objects "")
    # What a build with sanitizers takes from the ordinary one: bitcode, and native kernels that it does not follow.
    if(INGOT_PLAIN_BUILD AND NOT isa STREQUAL INGOT_SANITIZED_KERNELS)
      list(APPEND folders ${isa}=${INGOT_PLAIN_BUILD}/kernels/${isa})
      list(APPEND all_bitcode ${INGOT_PLAIN_BUILD}/kernels/kernels_${isa}.bc)
      continue()
    endif()
    list(APPEND folders ${isa}=${out}/${isa})
    foreach(source ${sources})
      get_filename_component(stem ${source} NAME_WE)
      set(bc ${out}/${isa}/${stem}.bc)
      set(obj ${out}/${isa}/${stem}.o)
      set(compile ${INGOT_CCACHE} ${CMAKE_CXX_COMPILER} ${flags} ${INGOT_MARCH_${isa}})
      foreach(more ${INGOT_MORE_${isa}})
        if(more MATCHES "^${stem}=(.*)")
          separate_arguments(flags_of_file UNIX_COMMAND "${CMAKE_MATCH_1}")
          list(APPEND compile ${flags_of_file})
        endif()
      endforeach()
      if(NOT INGOT_PLAIN_BUILD AND NOT stem STREQUAL "interpreter")
        add_custom_command(OUTPUT ${bc} DEPENDS ${source} ${headers} VERBATIM
          COMMAND ${compile} -O1 -Xclang -disable-llvm-passes -emit-llvm -c ${source} -o ${bc}
          COMMENT "bitcode ${isa} ${stem}")
        list(APPEND bitcode ${bc})
      endif()
      add_custom_command(OUTPUT ${obj} DEPENDS ${source} ${headers} VERBATIM
        COMMAND ${compile} ${INGOT_OPTIMISE_${isa}} -fno-unroll-loops -fno-asynchronous-unwind-tables -DINGOT_NATIVE ${INGOT_KERNEL_SANITIZE} -ffunction-sections -fdata-sections -c ${source} -o ${obj}
        COMMENT "native ${isa} ${stem}")
      list(APPEND objects ${obj})
    endforeach()
    set(linked ${out}/kernels_${isa}.bc)
    if(INGOT_PLAIN_BUILD)
      set(linked ${INGOT_PLAIN_BUILD}/kernels/kernels_${isa}.bc)
    else()
      add_custom_command(OUTPUT ${linked} DEPENDS ${bitcode} VERBATIM
        COMMAND ${LLVM_BIN}/llvm-link ${bitcode} -o ${linked}.raw
        COMMAND ${LLVM_BIN}/opt ${linked}.raw -o ${linked}
                "-passes=always-inline,function(${tidy},loop-simplify,lcssa,loop(loop-rotate,loop-unroll-full),${tidy}),globaldce"
        COMMENT "bitcode ${isa}")
    endif()
    list(APPEND all_bitcode ${linked})
    list(APPEND all_objects ${objects})
  endforeach()
  set(table ${out}/kernel_table.cpp)
  set(script ${CMAKE_SOURCE_DIR}/cmake/kernel_table.py)
  add_custom_command(OUTPUT ${made} ${table} DEPENDS ${all_objects} ${script} VERBATIM
    COMMAND ${Python_EXECUTABLE} ${script} ${LLVM_BIN} ${out} ${folders}
    COMMENT "kernel table")
  add_library(ingot_kernel_table OBJECT ${table})
  target_compile_options(ingot_kernel_table PRIVATE -fdata-sections)
  add_custom_target(ingot_native_kernels DEPENDS ${natives})
  set(INGOT_KERNEL_BITCODE ${all_bitcode} PARENT_SCOPE)
  set(INGOT_KERNEL_OBJECTS ${natives} PARENT_SCOPE)
  set(INGOT_SHIPPED_KERNELS ${shipped_natives} PARENT_SCOPE)
  set(INGOT_ABSENT_KERNELS ${shipped_absent} PARENT_SCOPE)
endfunction()

# Runtime objects, yaml-cpp and the parts of the C++ library they use, joined into one object that
# needs nothing but native kernels, libc and libm.
function(ingot_runtime_object)
  find_library(INGOT_YAML NAMES libyaml-cpp.a REQUIRED)
  if(INGOT_PLAIN_BUILD)
    set(INGOT_RUNTIME_OBJECT ${INGOT_PLAIN_BUILD}/runtime_object.o PARENT_SCOPE)
    return()
  endif()
  set(joined ${CMAKE_BINARY_DIR}/runtime_object.o)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.a OUTPUT_VARIABLE stdcxx OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libgcc_eh.a OUTPUT_VARIABLE gcc_eh OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libgcc.a OUTPUT_VARIABLE gcc OUTPUT_STRIP_TRAILING_WHITESPACE)
  add_custom_command(OUTPUT ${joined} VERBATIM COMMAND_EXPAND_LISTS
    DEPENDS $<FILTER:$<TARGET_OBJECTS:ingot_runtime>,EXCLUDE,[.]pch$> $<TARGET_OBJECTS:ingot_c_api> $<TARGET_OBJECTS:ingot_kernel_table>
    COMMAND ${LLVM_BIN}/ld.lld -r --strip-debug $<FILTER:$<TARGET_OBJECTS:ingot_runtime>,EXCLUDE,[.]pch$> $<TARGET_OBJECTS:ingot_c_api>
            $<TARGET_OBJECTS:ingot_kernel_table> ${INGOT_YAML} ${stdcxx} ${gcc_eh} ${gcc} -o ${joined}
    COMMENT "runtime object")
  set(INGOT_RUNTIME_OBJECT ${joined} PARENT_SCOPE)
endfunction()
