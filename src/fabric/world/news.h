/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks on several hosts tell each other through the store about ranks that have gone.  Every rank
 * leaves a last will with the store's server, which sees its connection end and tells the others; a
 * rank that leaves in order says so itself.  Every rank also keeps a server of its own in reserve:
 * when the one in use has gone, all go on with that of the lowest rank that lives.
 */
#ifndef WEFT_FABRIC_NEWS_H
#define WEFT_FABRIC_NEWS_H

#include "fabric/world/world.h"

/* From now on the end of this rank is told.  Again after each move. */
weft_status weft_i_news_open(weft_i_world *world);

/* Starts the server in reserve; `out` says where others reach it.  Empty where the store cannot be
 * replaced: it is the caller's, or no server of ours. */
weft_status weft_i_news_stand_by(weft_i_world *world, char *out, size_t bytes);

/* Reads who has gone; weft_i_world_fate knows it then. */
weft_status weft_i_news_hear(weft_i_world *world);

/*
 * After UNREACHABLE: connects to the store in use, or to the next one.  What was in the old one is
 * lost then, and world->moves counts one more.  UNREACHABLE, without a message, if there is none.
 */
weft_status weft_i_news_move(weft_i_world *world, int64_t deadline);

/* Says that this rank leaves in order. */
void weft_i_news_leave(weft_i_world *world);

/* After that: a rank whose server is in use waits until all others have left or died, at most as
 * long as an operation may take. */
void weft_i_news_see_off(weft_i_world *world);

#endif
