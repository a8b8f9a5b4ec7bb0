# Writes OUT, a header with the commit that SOURCE is at ("-dirty" with changes of its own), if it
# says something else. Run at every build: configuring once would leave an old commit in results.
cmake_minimum_required(VERSION 3.18)
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit "unknown")
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define WM_COMMIT \"@commit@\"\n" @ONLY)
