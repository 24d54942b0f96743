/* utf8.c -- a text that comes a byte at a time, written in whole characters.
 *
 * In: bytes, as tokens give them. Out: UTF-8. The one idea: bytes that may begin a character are
 * held until it is complete; what turns out to be none becomes U+FFFD, one for each longest part
 * that could have begun one, as decoders of other languages have it.
 */
#include "run.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

/* Some bytes behind them would make them a character: the smallest do, or the largest. */
static bool may_begin(const uint8_t *s, int n)
{
    int length = 0;
    for (int fill = 0x80; fill <= 0xbf && length == 0; fill += 0x3f) {
        uint8_t whole[4] = { (uint8_t)fill, (uint8_t)fill, (uint8_t)fill, (uint8_t)fill };
        memcpy(whole, s, (size_t)n);
        (void)rt_utf8_decode(whole, sizeof whole, &length);
    }
    return length > n;
}

void rt_utf8_end(RtHeld *held, FILE *out)
{
    if (held->n > 0)
        fputs(replacement, out);
    held->n = 0;
}

void rt_utf8_write(RtHeld *held, uint8_t byte, FILE *out)
{
    int length;
    held->at[held->n++] = byte;
    (void)rt_utf8_decode(held->at, (size_t)held->n, &length);
    if (length > 0) {
        fwrite(held->at, 1, (size_t)length, out);
        held->n = 0;
    } else if (!may_begin(held->at, held->n)) {
        const bool alone = held->n == 1;
        rt_utf8_end(held, out);
        if (!alone)
            rt_utf8_write(held, byte, out); /* it may begin the next one */
    }
}
