# The bundle. `cmake --install build/release --prefix DIR` makes a tree that runs wherever it is
# copied to:
# - bin/ has the programs. Their RPATH finds lib/ relative to the programs.
# - lib/ has all libraries that the programs need, except those of BATON_NOT_BUNDLED.
# - lib/ucx/ has UCX's modules. UCX looks for them in ucx/ beside its libraries.
#
# tools/bundle wraps this file (the UCX of the wheel, extra components, sizes). The components
# `baton` and `ucx` are installed by default. The components `ucx_cuda`, which replaces `ucx`, and
# `gpu` are installed only by name.
if(BATON_SANITIZE)  # sanitized programs are not shipped
  return()
endif()

# This prefix is CMake's default. Other programs would find the bundled libraries there.
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr/local")
  set(CMAKE_INSTALL_PREFIX ${CMAKE_BINARY_DIR}/bundle CACHE PATH "where the bundle goes without --prefix" FORCE)
endif()

# Libraries that the target machine must provide. glibc belongs to its loader. CUDA and RDMA
# libraries belong to its drivers.
set(BATON_NOT_BUNDLED
    "^(ld-linux-x86-64|lib(c|m|dl|rt|pthread|resolv|util|anl|nsl|mvec))\\.so"
    "^lib(cuda|cudart|cublas|cublasLt|nvrtc|nvidia-ml|nccl)\\.so"
    "^lib(ibverbs|mlx5|rdmacm|efa)\\.so")

# baton_bundle(COMPONENT [EXCLUDE_FROM_ALL] TARGETS target ...) installs programs together with the
# libraries to which they are linked.
function(baton_bundle component)
  cmake_parse_arguments(ARG "EXCLUDE_FROM_ALL" "" "TARGETS" ${ARGN})
  set(rpath "$ORIGIN/../lib" /usr/local/cuda/lib64)
  set_target_properties(${ARG_TARGETS} PROPERTIES INSTALL_RPATH "${rpath}" BUILD_RPATH "${rpath}")
  foreach(target IN LISTS ARG_TARGETS)
    # DT_RPATH also applies to the libraries of libraries. DT_RUNPATH does not.
    target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  endforeach()
  set(where COMPONENT ${component})
  if(ARG_EXCLUDE_FROM_ALL)
    list(APPEND where EXCLUDE_FROM_ALL)
  endif()
  install(TARGETS ${ARG_TARGETS}
    # UCX is a component of its own.
    RUNTIME_DEPENDENCIES PRE_EXCLUDE_REGEXES ${BATON_NOT_BUNDLED} "^libuc[mpst]\\.so"
    RUNTIME DESTINATION bin ${where}
    LIBRARY DESTINATION lib ${where})
endfunction()

# baton_bundle_ucx(COMPONENT FOLDER [EXCLUDE_FROM_ALL]) installs UCX. FOLDER is a pattern for the
# folder of its libraries.
function(baton_bundle_ucx component folder)
  install(CODE "
    set(BATON_NOT_BUNDLED [[${BATON_NOT_BUNDLED}]])
    set(BATON_STRIP [[${CMAKE_STRIP}]])
    include([[${PROJECT_SOURCE_DIR}/cmake/InstallUcx.cmake]])
    install_ucx([[${folder}]])" COMPONENT ${component} ${ARGN})
endfunction()

# With debug information, the bundle would take 128 MB.
install(CODE "set(CMAKE_INSTALL_DO_STRIP TRUE)" ALL_COMPONENTS)

baton_bundle(baton TARGETS baton baton-router)
foreach(name baton-prefill baton-decode)
  baton_install_name(${name} baton COMPONENT baton)
endforeach()
# Programs for tests and measurements on a GPU machine.
set(gpu_programs ucx_test ucx_peer bench_transport)
if(BATON_HAS_CUDA)
  list(APPEND gpu_programs kernels_test cuda_test bench_cuda)
endif()
baton_bundle(gpu EXCLUDE_FROM_ALL TARGETS ${gpu_programs})

# tools/gpu_check and the files that it uses, in the layout of a checkout.
foreach(file tools/gpu_check tools/gpu_cluster tools/convert/__init__.py tools/convert/random_model.py
             tools/convert/safetensors_writer.py bench/peer_sdpa.py bench/gpu_figures.py test/golden/tiny_llama3_bf16/config.json
             test/golden/tiny_llama3_bf16/tokenizer.json test/golden/tiny_llama3_bf16/tokenizer_config.json)
  get_filename_component(folder ${file} DIRECTORY)
  install(PROGRAMS ${PROJECT_SOURCE_DIR}/${file} DESTINATION ${folder} COMPONENT gpu EXCLUDE_FROM_ALL)
endforeach()

get_target_property(ucx_library ucx::ucp IMPORTED_LOCATION)
get_filename_component(ucx_folder ${ucx_library} DIRECTORY)
baton_bundle_ucx(ucx ${ucx_folder})
baton_bundle_ucx(ucx_cuda "${PROJECT_SOURCE_DIR}/.venv-cuda/lib/python3*/site-packages/libucx/lib" EXCLUDE_FROM_ALL)

add_test(NAME bundle COMMAND ${PROJECT_SOURCE_DIR}/test/bundle/check_bundle ${CMAKE_BINARY_DIR})
set_tests_properties(bundle PROPERTIES TIMEOUT ${BATON_TEST_TIMEOUT})
