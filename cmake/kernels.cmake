# The kernel sources, compiled for each ISA level twice: to bitcode, which the code generator specialises, and
# natively. In the native object everything is local except the ingot_* functions, which get the level as a suffix;
# the generated table has a `Kernel` (kernels/abi.h) for each of them.
set(INGOT_ISA_LEVELS v2 v3)
set(LLVM_BIN /usr/lib/llvm-22/bin)

function(ingot_kernels folder)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  file(GLOB headers CONFIGURE_DEPENDS ${folder}/*.h ${folder}/../graph/expr.h ${folder}/../base/*.h)
  set(out ${CMAKE_BINARY_DIR}/kernels)
  # integers wrap (-fwrapv)
  set(flags -std=c++20 -fPIC -fno-exceptions -fno-rtti -fwrapv -ffp-contract=fast -fno-math-errno -fno-trapping-math
      -fvisibility=hidden -Wall -Wno-psabi -Wno-pass-failed -I${folder}/.. -I${CMAKE_BINARY_DIR}/generated)
  set(tidy "sroa,early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,simplifycfg")
  set(all_bitcode "")
  set(all_objects "")
  foreach(isa ${INGOT_ISA_LEVELS})
    set(bitcode "")
    set(objects "")
    foreach(source ${sources})
      get_filename_component(stem ${source} NAME_WE)
      set(bc ${out}/${isa}/${stem}.bc)
      set(obj ${out}/${isa}/${stem}.o)
      set(compile ${INGOT_CCACHE} ${CMAKE_CXX_COMPILER} ${flags} -march=x86-64-${isa})
      set(beyond "")
      if("${isa}/${stem}" STREQUAL "v3/gemm_i8")  # code for x86-64-v3+vnni is made from this bitcode
        set(beyond -mavxvnni)
      endif()
      if(NOT stem STREQUAL "interpreter")
        add_custom_command(OUTPUT ${bc} DEPENDS ${source} ${headers} VERBATIM
          COMMAND ${compile} ${beyond} -O1 -Xclang -disable-llvm-passes -emit-llvm -c ${source} -o ${bc}
          COMMENT "bitcode ${isa} ${stem}")
        list(APPEND bitcode ${bc})
      endif()
      add_custom_command(OUTPUT ${obj} DEPENDS ${source} ${headers} VERBATIM
        COMMAND ${compile} $<IF:$<STREQUAL:${isa},v2>,-Os,-O2> -fno-unroll-loops -fno-asynchronous-unwind-tables -DINGOT_NATIVE ${INGOT_KERNEL_SANITIZE} -ffunction-sections -fdata-sections -c ${source} -o ${obj}
        COMMENT "native ${isa} ${stem}")
      list(APPEND objects ${obj})
    endforeach()
    set(linked ${out}/kernels_${isa}.bc)
    add_custom_command(OUTPUT ${linked} DEPENDS ${bitcode} VERBATIM
      COMMAND ${LLVM_BIN}/llvm-link ${bitcode} -o ${linked}.raw
      COMMAND ${LLVM_BIN}/opt ${linked}.raw -o ${linked}
              "-passes=always-inline,function(${tidy},loop-simplify,lcssa,loop(loop-rotate,loop-unroll-full),${tidy}),globaldce"
      COMMENT "bitcode ${isa}")
    list(APPEND all_bitcode ${linked})
    list(APPEND all_objects ${objects})
    list(APPEND natives ${out}/native_${isa}.o)
  endforeach()
  set(table ${out}/kernel_table.cpp)
  set(script ${CMAKE_SOURCE_DIR}/cmake/kernel_table.py)
  add_custom_command(OUTPUT ${natives} ${table} DEPENDS ${all_objects} ${script} VERBATIM
    COMMAND ${Python_EXECUTABLE} ${script} ${LLVM_BIN} ${out} ${INGOT_ISA_LEVELS}
    COMMENT "kernel table")
  add_library(ingot_kernel_table OBJECT ${table})
  target_compile_options(ingot_kernel_table PRIVATE -fdata-sections)
  add_custom_target(ingot_native_kernels DEPENDS ${natives})
  set(INGOT_KERNEL_BITCODE ${all_bitcode} PARENT_SCOPE)
  set(INGOT_KERNEL_OBJECTS ${natives} PARENT_SCOPE)
endfunction()

# Runtime objects, native kernels, yaml-cpp and the parts of the C++ library they use, joined into one object that
# needs nothing but libc and libm.
function(ingot_runtime_object)
  set(joined ${CMAKE_BINARY_DIR}/runtime_object.o)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.a OUTPUT_VARIABLE stdcxx OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libgcc_eh.a OUTPUT_VARIABLE gcc_eh OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libgcc.a OUTPUT_VARIABLE gcc OUTPUT_STRIP_TRAILING_WHITESPACE)
  find_library(INGOT_YAML NAMES libyaml-cpp.a REQUIRED)
  add_custom_command(OUTPUT ${joined} VERBATIM COMMAND_EXPAND_LISTS
    DEPENDS $<FILTER:$<TARGET_OBJECTS:ingot_runtime>,EXCLUDE,[.]pch$> $<TARGET_OBJECTS:ingot_c_api> $<TARGET_OBJECTS:ingot_kernel_table> ${INGOT_KERNEL_OBJECTS}
    COMMAND ${LLVM_BIN}/ld.lld -r --strip-debug $<FILTER:$<TARGET_OBJECTS:ingot_runtime>,EXCLUDE,[.]pch$> $<TARGET_OBJECTS:ingot_c_api>
            $<TARGET_OBJECTS:ingot_kernel_table> ${INGOT_KERNEL_OBJECTS} ${INGOT_YAML} ${stdcxx} ${gcc_eh} ${gcc} -o ${joined}
    COMMENT "runtime object")
  set(INGOT_RUNTIME_OBJECT ${joined} PARENT_SCOPE)
endfunction()
