# The ONNX schema, compiled for protobuf-lite.
#
#   ingot_onnx_proto(<target> <folder of the installed onnx Python package>)
#
# makes the static library <target> with onnx.pb.h on its include path. The schema is taken from the wheel, so that there
# is one place that says which ONNX this is. Symbols are hidden: a process may hold another protobuf and another onnx.
function(ingot_onnx_proto target onnx_package)
  set(schema ${onnx_package}/onnx.proto)
  if(NOT EXISTS ${schema})
    message(FATAL_ERROR "${schema} does not exist: install the onnx Python package")
  endif()
  set(folder ${CMAKE_BINARY_DIR}/onnx_proto)
  file(READ ${schema} text)
  if(NOT text MATCHES "optimize_for *= *LITE_RUNTIME")
    string(APPEND text "\noption optimize_for = LITE_RUNTIME;\n")
  endif()
  file(MAKE_DIRECTORY ${folder})
  file(CONFIGURE OUTPUT ${folder}/onnx.proto CONTENT "${text}" @ONLY)
  find_program(INGOT_PROTOC protoc REQUIRED)
  add_custom_command(
    OUTPUT ${folder}/onnx.pb.cc ${folder}/onnx.pb.h
    COMMAND ${INGOT_PROTOC} --proto_path=${folder} --cpp_out=lite:${folder} ${folder}/onnx.proto
    DEPENDS ${folder}/onnx.proto
    VERBATIM)
  # Programs hold protobuf; Debian's archive is not position independent enough for the Python module, which takes the
  # shared library (and a wheel brings it along).
  find_library(INGOT_PROTOBUF_LITE libprotobuf-lite.so REQUIRED)
  find_library(INGOT_PROTOBUF_LITE_ARCHIVE libprotobuf-lite.a REQUIRED)
  add_library(${target} STATIC ${folder}/onnx.pb.cc ${folder}/onnx.pb.h)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                                             VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(${target} PRIVATE -w)
  target_include_directories(${target} SYSTEM PUBLIC ${folder})
  target_link_libraries(${target} PUBLIC
    $<IF:$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>,${INGOT_PROTOBUF_LITE_ARCHIVE},${INGOT_PROTOBUF_LITE}>)
endfunction()
