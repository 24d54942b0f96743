/* attention.c -- softmax(scale q k') v and its gradient, in memory of order T.
 *
 * In: heads in place, wherever their rows lie (packed qkv included). Out: y and lse; d_q, d_k and
 * d_v. One thread does one head (in backward, one of k and v with the group of q's heads that share
 * it); where there are fewer heads than threads, blocks of queries (and in backward, for d_k and
 * d_v, blocks of keys) are shared out. Every sum has a fixed order. Heads in 16 bits are converted
 * one by one (attend_half.h).
 */
#include "cpu/cpu.h"
#include "cpu/simd.h"

enum { BLOCK = 64 }; /* queries, and keys, that meet in cache */

static bool attention_complete(RtAttention *a)
{
    if (a->scale == 0)
        a->scale = 1 / sqrt((double)a->D);
    a->group = max_size(1, a->group);
    return a->B > 0 && a->H > 0;
}

static int attention_threads(const RtAttention *a)
{
    const double work = (double)a->B * (double)a->H * (double)a->T * (double)a->S
                        * (double)(a->D + a->E);
    return omp_in_parallel() || work < RT_MATMUL_SMALL ? 1 : omp_get_max_threads();
}

/* ---- what a thread does ---------------------------------------------------------------------- */

/* Where a head starts, of B times H. */
CPU_INLINE ptrdiff_t head_at(const RtAttention *a, RtHeads step, ptrdiff_t head)
{
    return head / a->H * step.b + head % a->H * step.h;
}

/* The same of k and v, of B times H / group. */
CPU_INLINE ptrdiff_t keys_at(const RtAttention *a, RtHeads step, ptrdiff_t head)
{
    const ptrdiff_t heads = a->H / a->group;
    return head / heads * step.b + head % heads * step.h;
}

CPU_INLINE ptrdiff_t key_heads(const RtAttention *a) { return a->B * (a->H / a->group); }

/* In so many shares of its blocks a head goes forward. */
static ptrdiff_t forward_shares(const RtAttention *a, int threads)
{
    const ptrdiff_t heads = a->B * a->H, wanted = ceil_div(2 * threads, heads);
    return heads >= threads ? 1 : max_size(1, min_size(ceil_div(a->T, BLOCK), wanted));
}

/* A head of k and v with its group is an item; fewer of them than threads: each is split, d_q apart
   from d_k and d_v. */
typedef struct {
    ptrdiff_t head, share, shares;
    bool with_q, with_kv;
} BackwardItem;

static bool backward_is_split(const RtAttention *a, int threads)
{
    return key_heads(a) < threads && a->T > BLOCK;
}

static ptrdiff_t backward_shares(const RtAttention *a, int threads)
{
    return backward_is_split(a, threads) ? ceil_div(2 * threads, key_heads(a)) : 1;
}

static ptrdiff_t backward_items(const RtAttention *a, int threads)
{
    return key_heads(a) * backward_shares(a, threads) * (backward_is_split(a, threads) ? 2 : 1);
}

static BackwardItem backward_cut(const RtAttention *a, int threads, ptrdiff_t item)
{
    const bool split = backward_is_split(a, threads);
    const ptrdiff_t shares = backward_shares(a, threads), one = split ? item / 2 : item;
    return (BackwardItem){ .head = one / shares,
                           .share = one % shares,
                           .shares = shares,
                           .with_q = !split || item % 2 == 0,
                           .with_kv = !split || item % 2 == 1 };
}

#define TEMPLATE "cpu/attend.h"
#include "cpu/twice.h"
#define TEMPLATE "cpu/attend_half.h"
#include "cpu/halves.h"

/* ---- what they work in ----------------------------------------------------------------------- */

void rt_room_attention(RtRooms *rooms, RtType type, RtAttention a, bool backward)
{
    if (!attention_complete(&a))
        return;
    const bool team = attention_threads(&a) > 1;
    rt_cpu_room_ask(rooms, RT_ROOM_PACK, team,
                    type == RT_F64 ? head_room_f64(&a, backward) : head_room_f32(&a, backward));
    if (type == RT_BF16 || type == RT_F16)
        rt_cpu_room_ask(rooms, RT_ROOM_HALF, team, half_bytes_bf16(&a, backward));
}
