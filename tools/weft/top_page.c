/* SPDX-License-Identifier: Apache-2.0 */
/* `weft top --html`: the intervals of a job as a page; top_page.html draws them. */
#include "page.h"
#include "top.h"

static const unsigned char page[] = {
#include "top_page.inc"
};

static void put_rank(FILE *out, const top_rank *rank)
{
    char text[100];
    top_operation(&rank->is.now, text, sizeof text);
    fprintf(out, "{\"rank\":%d,\"process\":%d,\"state\":", rank->is.rank, rank->is.process);
    page_text(out, weft_job_state_name(rank->is.state));
    fprintf(out,
            ",\"share\":%.3f,\"calls\":%.1f,\"bytes\":%.0f,\"memory\":%llu,\"now\":", rank->share,
            rank->calls, rank->bytes, (unsigned long long)rank->resident);
    page_text(out, text);
    fprintf(out, ",\"waited\":%.3f,\"waits\":%d,\"for\":[", (double)top_wait_ns(rank) * 1e-9,
            rank->waits);
    for (int i = 0; i < rank->waits && i < 8; i++)
        fprintf(out, "%s%d", i ? "," : "", rank->waits_for[i]);
    fputs("]}", out);
}

int top_page(const char *path, const top_job *jobs, int count)
{
    FILE *out = page_open("top", path, page, sizeof page);
    if (!out)
        return 1;
    fputs("{\"program\":", out);
    page_text(out, jobs[0].info.program);
    fputs(",\"host\":", out);
    page_text(out, jobs[0].host);
    fprintf(out, ",\"process\":%d,\"steps\":[", jobs[0].info.process);
    for (int i = 0; i < count; i++) {
        fprintf(out, "%s{\"from\":%.3f,\"to\":%.3f,\"ranks\":[", i ? ",\n" : "",
                (double)(jobs[i].from_ns - jobs[0].from_ns) * 1e-9,
                (double)(jobs[i].to_ns - jobs[0].from_ns) * 1e-9);
        for (int r = 0; r < jobs[i].info.ranks; r++) {
            fputs(r ? ",\n" : "", out);
            put_rank(out, &jobs[i].rank[r]);
        }
        fputs("]}", out);
    }
    fputs("]}", out);
    return page_close("top", path, out, page, sizeof page);
}
