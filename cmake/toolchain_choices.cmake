# What every target of the project is compiled and linked with. Included once, by the root.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)

# Several files as one unit: headers and templates are compiled once for all of them, which makes a build from empty more than twice as fast. A file in
# which names of another file's unnamed namespace must not appear is left out by SKIP_UNITY_BUILD_INCLUSION.
option(STEPGRAPH_UNITY "compile the files of a folder together" ON)
set(CMAKE_UNITY_BUILD ${STEPGRAPH_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)

# -O2 for all (CMake's default of a release build is -O3, which costs a test file twice the time); the loops of the oracle ask for -O3 themselves.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

set(STEPGRAPH_SANITIZE "" CACHE STRING "sanitizers for all code, as in -fsanitize=..., or empty")
option(STEPGRAPH_FUZZ "build the libFuzzer targets (clang only)" OFF)

# Contraction across operations would give one value different bits in different kernels.
add_compile_options(-ffp-contract=off -Wall -Wextra -Werror=return-type -Werror=format)

if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # libstdc++ 12 calls its own deprecated get_temporary_buffer from std::stable_sort, and clang tells each caller.
  add_compile_options(-Wno-deprecated-declarations)
elseif(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 sees overlaps and overflows in its own strings and vectors that cannot be.
  add_compile_options(-Wno-restrict -Wno-array-bounds -Wno-maybe-uninitialized)
endif()

if(STEPGRAPH_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A .cpp file that is included in a unit is no header: its class may hold types of its own unnamed namespace.
  add_compile_options(-Wno-subobject-linkage)
endif()

if(STEPGRAPH_SANITIZE)
  add_compile_options(-fsanitize=${STEPGRAPH_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${STEPGRAPH_SANITIZE})
endif()

if(STEPGRAPH_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "STEPGRAPH_FUZZ needs clang, found ${CMAKE_CXX_COMPILER_ID}; use the preset dev")
  endif()
  # Without coverage in the libraries the fuzzer would be blind.
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()

find_program(STEPGRAPH_CCACHE ccache)
if(STEPGRAPH_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${STEPGRAPH_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${STEPGRAPH_CCACHE})
endif()

find_program(STEPGRAPH_MOLD NAMES mold)
find_program(STEPGRAPH_LLD NAMES ld.lld-19 ld.lld)
if(STEPGRAPH_MOLD)
  add_link_options(-fuse-ld=mold)
elseif(STEPGRAPH_LLD AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_link_options(-fuse-ld=lld)
endif()
