# One CMakeLists.txt per source folder calls hedgerow_module(); names follow from the folder, so
# that adding a folder or a file edits no list.
#
#   hedgerow_module([TORCH] [DEPS base kernels_softmax ...] [LIBS imported::target ...])
#
# builds the static library hedgerow_<folder> (src/kernels/softmax -> hedgerow_kernels_softmax)
# from every .cc of the folder, and from each
#   *_test.cc   a GoogleTest program and a CTest entry,
#   *_bench.cc  a benchmark program,
#   *_fuzz.cc   a libFuzzer program (HEDGEROW_FUZZ).
# TORCH marks a folder above the torch line. DEPS are other folders, LIBS outside libraries.

set(HEDGEROW_MODULES "" CACHE INTERNAL "")
# A hanging test ends; sanitizers make the scalar target's tests slow.
set(HEDGEROW_TEST_TIMEOUT_S 900)
set(HEDGEROW_SANITIZER_OPTIONS "")
if(HEDGEROW_SANITIZE)
  set(HEDGEROW_TEST_TIMEOUT_S 2400)
  # Memory that cannot be had is refused as without the sanitizer: tests look for the error.
  set(HEDGEROW_SANITIZER_OPTIONS "ASAN_OPTIONS=allocator_may_return_null=1;TSAN_OPTIONS=allocator_may_return_null=1")
endif()
set(HEDGEROW_WARNINGS -Wall -Wextra -Wno-unused-parameter -Wno-unknown-pragmas
    -Wno-missing-field-initializers -Wno-restrict)

function(hedgerow_add_folders)
  foreach(folder ${ARGN})
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/CMakeLists.txt)
      add_subdirectory(${folder})
    else()
      file(GLOB children CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*/CMakeLists.txt)
      foreach(child ${children})
        get_filename_component(child_dir ${child} DIRECTORY)
        add_subdirectory(${child_dir})
      endforeach()
    endif()
  endforeach()
endfunction()

function(hedgerow_common target torch)
  target_compile_options(${target} PRIVATE ${HEDGEROW_WARNINGS})
  if(HEDGEROW_POISON)
    target_compile_definitions(${target} PRIVATE HEDGEROW_POISON=1)
  endif()
  if(torch)
    target_link_libraries(${target} PRIVATE hedgerow::torch)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL EXECUTABLE)
      # Compiled like the libraries (-fPIC, not -fPIE), so that one precompiled header fits both.
      set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${target} PRIVATE -fPIC)
    endif()
    hedgerow_use_torch_pch(${target})
  elseif(HEDGEROW_SANITIZE)
    string(REPLACE ";" "," kinds "${HEDGEROW_SANITIZE}")
    target_compile_options(${target} PRIVATE -fsanitize=${kinds} -fno-omit-frame-pointer -g)
    target_link_options(${target} PUBLIC -fsanitize=${kinds})
  endif()
endfunction()

function(hedgerow_module)
  cmake_parse_arguments(M "TORCH" "NAME" "DEPS;LIBS;TEST_LIBS;TEST_ARGS" ${ARGN})
  file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR})
  string(REPLACE "../" "" path ${path})
  string(REPLACE "/" "_" name ${path})
  if(M_NAME)
    set(name ${M_NAME})
  endif()
  file(GLOB sources CONFIGURE_DEPENDS *.cc)
  set(tests ${sources})
  set(benches ${sources})
  set(fuzzers ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  list(FILTER sources EXCLUDE REGEX "(_test|_bench|_fuzz|_main)\\.cc$")

  set(deps "")
  foreach(dep ${M_DEPS})
    list(APPEND deps hedgerow_${dep})
  endforeach()
  set(library hedgerow_${name})
  if(sources)
    add_library(${library} STATIC ${sources})
    hedgerow_common(${library} "${M_TORCH}")
    target_include_directories(${library} PUBLIC ${PROJECT_SOURCE_DIR}/include
                                                 ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
    target_link_libraries(${library} PUBLIC ${deps} ${M_LIBS} Threads::Threads)
    set(HEDGEROW_MODULES ${HEDGEROW_MODULES} ${library} CACHE INTERNAL "")
  else()
    add_library(${library} INTERFACE)
    target_include_directories(${library} INTERFACE ${PROJECT_SOURCE_DIR}/include
                                                    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
    target_link_libraries(${library} INTERFACE ${deps} ${M_LIBS} Threads::Threads)
  endif()

  # Programs above the torch line link the one shared library, in which every operator registers.
  set(program_libs ${library})
  if(M_TORCH)
    set(program_libs hedgerow)
  endif()
  if(HEDGEROW_BUILD_TESTS)
    foreach(source ${tests})
      get_filename_component(program ${source} NAME_WE)
      set(program ${name}_${program})
      add_executable(${program} ${source})
      hedgerow_common(${program} "${M_TORCH}")
      target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR}/include
                                                    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
      target_link_libraries(${program} PRIVATE ${program_libs} ${M_LIBS} ${M_TEST_LIBS} GTest::gtest_main)
      add_test(NAME ${program} COMMAND ${program} ${M_TEST_ARGS})
      set_tests_properties(${program} PROPERTIES TIMEOUT ${HEDGEROW_TEST_TIMEOUT_S} ENVIRONMENT
        "HEDGEROW_SOURCE_DIR=${PROJECT_SOURCE_DIR};HEDGEROW_PYTHON=${HEDGEROW_PYTHON};${HEDGEROW_SANITIZER_OPTIONS}")
    endforeach()
  endif()
  if(HEDGEROW_BUILD_BENCH AND NOT HEDGEROW_SANITIZE)
    foreach(source ${benches})
      get_filename_component(program ${source} NAME_WE)
      add_executable(${name}_${program} ${source})
      hedgerow_common(${name}_${program} "${M_TORCH}")
      target_link_libraries(${name}_${program} PRIVATE ${program_libs})
    endforeach()
  endif()
  if(HEDGEROW_FUZZ)
    foreach(source ${fuzzers})
      get_filename_component(program ${source} NAME_WE)
      add_executable(${name}_${program} ${source})
      hedgerow_common(${name}_${program} "${M_TORCH}")
      target_link_libraries(${name}_${program} PRIVATE ${library})
      target_link_options(${name}_${program} PRIVATE -fsanitize=fuzzer)
    endforeach()
    if(sources)
      target_compile_options(${library} PRIVATE -fsanitize=fuzzer-no-link)
    endif()
  endif()
endfunction()

# Everything in one shared library: operators register when it is loaded, whichever program loads
# it. Whole archives keep registrations that nothing refers to.
function(hedgerow_shared_library)
  add_library(hedgerow SHARED ${PROJECT_SOURCE_DIR}/src/library.cc)
  hedgerow_common(hedgerow "")
  # Each archive once: CMake 3.25 repeats those that others need inside its own WHOLE_ARCHIVE groups,
  # which GNU ld refuses. What they link comes after them.
  foreach(module ${HEDGEROW_MODULES})
    list(APPEND archives $<TARGET_FILE:${module}>)
  endforeach()
  target_link_options(hedgerow PRIVATE LINKER:--push-state,--whole-archive ${archives} LINKER:--pop-state)
  target_link_libraries(hedgerow PRIVATE ${HEDGEROW_MODULES})
  target_link_libraries(hedgerow PUBLIC hedgerow::torch)
  target_include_directories(hedgerow PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_target_properties(hedgerow PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  if(NOT SKBUILD)  # wheels hold no links
    set_target_properties(hedgerow PROPERTIES SOVERSION ${PROJECT_VERSION_MAJOR})
  endif()
  file(WRITE ${PROJECT_BINARY_DIR}/lib/torch_version.txt "${HEDGEROW_TORCH_VERSION}\n")

  if(NOT TARGET hedgerow_cli)
    return()
  endif()
  add_executable(hedgerow_program ${PROJECT_SOURCE_DIR}/src/cli/program_main.cc)
  hedgerow_common(hedgerow_program "")
  target_link_libraries(hedgerow_program PRIVATE hedgerow)
  set_target_properties(hedgerow_program PROPERTIES OUTPUT_NAME hedgerow
                        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
endfunction()
