# KVR_SANITIZE: "", "address,undefined" or "thread". Applied to the whole build.
if(KVR_SANITIZE)
  add_compile_options(-fsanitize=${KVR_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${KVR_SANITIZE})
  if(KVR_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize-recover=undefined)
    if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
      # clang 14 cannot put this check's prologue into the parts of a coroutine.
      add_compile_options(-fno-sanitize=function)
    endif()
  endif()
  if(KVR_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    add_compile_options(-Wno-tsan)  # atomic_thread_fence in third-party headers
  endif()
endif()
if(KVR_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
