# SPDX-License-Identifier: Apache-2.0
# Known bugs, planted: copies of sources in which a line is wrong while SIM_PLANTED(n) is true (points.h).  The tests choose n
# and fail if their seeds do not find the bug.  Where a source has changed and no longer holds the text, the plant is lost, and
# so is told by the test.
set(SIM_PLANTS_LOST "")

# plant(number file from to): in the copy of src/<file>, which holds the text `from` once, `to` takes its place.
function(plant number file from to)
  set(copy ${CMAKE_CURRENT_BINARY_DIR}/planted/${file})
  set(source ${PROJECT_SOURCE_DIR}/src/${file})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  get_property(begun GLOBAL PROPERTY SIM_PLANTED_${file})
  if(begun)
    file(READ ${copy}.new text)
  else()
    file(READ ${source} text)
    string(PREPEND text "#line 1 \"${source}\"\n")
    set_property(GLOBAL PROPERTY SIM_PLANTED_${file} ON)
    set(SIM_PLANTED_FILES ${SIM_PLANTED_FILES} ${file} PARENT_SCOPE)
  endif()
  string(REPLACE "${from}" "" without "${text}")
  string(LENGTH "${text}" before)
  string(LENGTH "${without}" after)
  string(LENGTH "${from}" once)
  math(EXPR gone "${before} - ${after}")
  if(NOT gone EQUAL once)
    set(SIM_PLANTS_LOST "${SIM_PLANTS_LOST} ${number} in src/${file}" PARENT_SCOPE)
    message(WARNING "The text that planted bug ${number} replaces is not in src/${file} just once")
  else()
    string(REPLACE "${from}" "${to}" text "${text}")
  endif()
  file(WRITE ${copy}.new "${text}")
endfunction()

# Once all are planted: only what has changed is built again.
function(plant_all)
  foreach(file ${SIM_PLANTED_FILES})
    set(copy ${CMAKE_CURRENT_BINARY_DIR}/planted/${file})
    configure_file(${copy}.new ${copy} COPYONLY)
  endforeach()
endfunction()

# 1: the fetch connects by a call that waits, and an owner that is stopped takes nobody in.
plant(1 base/share/fdpass.c
  "!WEFT_OS->setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &moment, sizeof moment)"
  "SIM_PLANTED(1) || !WEFT_OS->setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &moment, sizeof moment)")
# 2: the server's thread goes on while the process exits, and nothing keeps it from libcrypto.
plant(2 store/server.c "weft_i_os_at_exit(end_all)" "(SIM_PLANTED(2) || weft_i_os_at_exit(end_all))")
plant(2 base/share/keyed.c "!weft_i_os_at_exit(close_gate)" "(!SIM_PLANTED(2) && !weft_i_os_at_exit(close_gate))")
# 3: rank 0 takes the store along while others still read.
plant(3 fabric/meet/meet.c "weft_i_news_see_off(world->world)" "SIM_PLANTED(3) ? (void)0 : weft_i_news_see_off(world->world)")
# 5: as many values are taken as the server says.
plant(5 store/client.c "!weft_i_store_answer_fits(s->answer, s->request)"
  "!SIM_PLANTED(5) && !weft_i_store_answer_fits(s->answer, s->request)")
# 9: whoever knocks takes a place, and the oldest goes, be it a rank.
plant(9 store/server.c "!weft_i_store_peer_screen(server, fd)"
  "!SIM_PLANTED(9) && !weft_i_store_peer_screen(server, fd)")
plant(9 store/server.c "i < ACCEPTS" "i < (SIM_PLANTED(9) ? 256 : ACCEPTS)")
plant(9 store/server.c "if (peer) /*" "if (peer && !SIM_PLANTED(9)) /*")
plant(9 store/address.c "WEFT_OS->setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &one, sizeof one)"
  "SIM_PLANTED(9) ? 0 : WEFT_OS->setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &one, sizeof one)")
plant_all()
