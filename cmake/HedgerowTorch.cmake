# libtorch from the installed torch wheel, by imported targets of our own: find_package(Torch) wants
# a CUDA toolkit when the wheel was built with CUDA, and we need none.
#
#   HEDGEROW_PYTHON  the interpreter whose torch is used (default: the one that pip builds for, else
#                    .venv, else python3)

if(NOT HEDGEROW_PYTHON)
  if(SKBUILD)
    set(HEDGEROW_PYTHON ${Python_EXECUTABLE})
  elseif(EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
    set(HEDGEROW_PYTHON ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  else()
    find_program(HEDGEROW_PYTHON NAMES python3 REQUIRED)
  endif()
endif()
set(HEDGEROW_PYTHON ${HEDGEROW_PYTHON} CACHE FILEPATH "Python interpreter that has torch installed")

execute_process(
  COMMAND ${HEDGEROW_PYTHON} -c
    "import importlib.metadata as m, importlib.util as u, os; print(os.path.dirname(u.find_spec('torch').origin)); print(m.version('torch'))"
  OUTPUT_VARIABLE torch_facts OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE torch_missing ERROR_QUIET)
if(torch_missing)
  message(FATAL_ERROR "torch is not installed for ${HEDGEROW_PYTHON}; run `make setup`")
endif()
string(REPLACE "\n" ";" torch_facts "${torch_facts}")
list(GET torch_facts 0 HEDGEROW_TORCH_DIR)
list(GET torch_facts 1 HEDGEROW_TORCH_VERSION)
message(STATUS "torch ${HEDGEROW_TORCH_VERSION} in ${HEDGEROW_TORCH_DIR}")

add_library(hedgerow_torch INTERFACE)
add_library(hedgerow::torch ALIAS hedgerow_torch)
target_include_directories(hedgerow_torch SYSTEM INTERFACE
  $<BUILD_INTERFACE:${HEDGEROW_TORCH_DIR}/include>
  $<BUILD_INTERFACE:${HEDGEROW_TORCH_DIR}/include/torch/csrc/api/include>)
# at::parallel_for is an inline OpenMP region, so callers are compiled with -fopenmp; the runtime
# linked is the one that torch itself loads, never a second one.
target_compile_options(hedgerow_torch INTERFACE $<BUILD_INTERFACE:-fopenmp>)
file(GLOB torch_gomp ${HEDGEROW_TORCH_DIR}/lib/libgomp*.so* ${HEDGEROW_TORCH_DIR}/../torch.libs/libgomp*.so*)
if(NOT torch_gomp)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  set(torch_gomp OpenMP::OpenMP_CXX)
endif()
target_link_libraries(hedgerow_torch INTERFACE
  $<BUILD_INTERFACE:${HEDGEROW_TORCH_DIR}/lib/libtorch_cpu.so>
  $<BUILD_INTERFACE:${HEDGEROW_TORCH_DIR}/lib/libtorch.so>
  $<BUILD_INTERFACE:${HEDGEROW_TORCH_DIR}/lib/libc10.so>
  "$<BUILD_INTERFACE:${torch_gomp}>")

# One precompiled header of narrow torch headers serves every folder above the torch line.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/torch_pch_anchor.cc CONTENT "\n")
add_library(hedgerow_torch_pch OBJECT ${PROJECT_BINARY_DIR}/torch_pch_anchor.cc)
target_link_libraries(hedgerow_torch_pch PRIVATE hedgerow_torch)
target_compile_options(hedgerow_torch_pch PRIVATE ${HEDGEROW_WARNINGS})
target_precompile_headers(hedgerow_torch_pch PRIVATE ${PROJECT_SOURCE_DIR}/cmake/torch_pch.h)

function(hedgerow_use_torch_pch target)
  target_precompile_headers(${target} REUSE_FROM hedgerow_torch_pch)
endfunction()
