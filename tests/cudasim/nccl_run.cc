/* nccl_run.cc -- operations of the simulated NCCL: collectives, sends and receives.
 *
 * In: an operation whose turn on its stream has come. Out: true once it is done; until then it is
 * tried again, so that other streams and the host go on. A collective: every rank leaves its data
 * in its file and says so; when all have, each takes what it needs. Sums run over the ranks in
 * their order, rounded to the type after each.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "half.h"
#include "nccl_inside.h"

/* ---- names and sizes ------------------------------------------------------------------------- */

const char *nccl_kind_name(NcclKind kind)
{
    static const char *const name[] = { "ncclAllReduce",     "ncclReduce",    "ncclBroadcast",
                                        "ncclReduceScatter", "ncclAllGather", "ncclSend",
                                        "ncclRecv" };
    return name[kind];
}

size_t nccl_size(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 0;
    }
}

static bool reduces(NcclKind kind)
{
    return kind == NCCL_ALL_REDUCE || kind == NCCL_REDUCE || kind == NCCL_REDUCE_SCATTER;
}

static bool rooted(NcclKind kind) { return kind == NCCL_REDUCE || kind == NCCL_BROADCAST; }

std::string nccl_describe(const NcclWhat *what)
{
    static const char *const types[] = { "int8",   "uint8",   "int32",   "uint32",  "int64",
                                         "uint64", "float16", "float32", "float64", "bfloat16" };
    static const char *const ops[] = { "sum", "product", "max", "min", "average" };
    std::string text = nccl_kind_name(what->kind);
    text += " of " + std::to_string(what->count) + " " + types[what->type];
    if (reduces(what->kind))
        text += std::string(", ") + ops[what->op];
    if (rooted(what->kind))
        text += ", root " + std::to_string(what->root);
    if (what->graph)
        text += ", in a graph";
    if (what->kind == NCCL_SEND || what->kind == NCCL_RECV)
        text += (what->kind == NCCL_SEND ? " to rank " : " from rank ")
                + std::to_string(what->root);
    return text;
}

static bool same(const NcclWhat *a, const NcclWhat *b)
{
    return a->kind == b->kind && a->type == b->type && a->count == b->count && a->graph == b->graph
           && (!reduces(a->kind) || a->op == b->op) && (!rooted(a->kind) || a->root == b->root);
}

/* ---- data files ------------------------------------------------------------------------------ */

static void leave(const NcclComm *c, const void *from, size_t bytes, uint64_t at)
{
    const char *p = (const char *)from;
    while (bytes > 0) {
        const ssize_t n = pwrite(c->files[(size_t)c->rank], p, bytes, (off_t)at);
        if (n <= 0)
            cudasim_report("NCCL: cannot write %zu bytes for the other ranks: %s", bytes,
                           strerror(errno));
        p += n;
        at += (uint64_t)n;
        bytes -= (size_t)n;
    }
}

static void take(const NcclComm *c, int rank, void *to, size_t bytes, uint64_t at)
{
    char *p = (char *)to;
    while (bytes > 0) {
        const ssize_t n = pread(c->files[(size_t)rank], p, bytes, (off_t)at);
        if (n <= 0)
            cudasim_report("NCCL: cannot read %zu bytes of rank %d: %s", bytes, rank,
                           n ? strerror(errno) : "the file ends");
        p += n;
        at += (uint64_t)n;
        bytes -= (size_t)n;
    }
}

/* ---- reductions ------------------------------------------------------------------------------ */

template <typename T> static T combine(T a, T b, ncclRedOp_t op)
{
    switch (op) {
    case ncclProd: return (T)(a * b);
    case ncclMax: return a > b ? a : b;
    case ncclMin: return a < b ? a : b;
    default: return (T)(a + b);
    }
}

template <typename T>
static void combine_all(void *into, const void *from, size_t count, ncclRedOp_t op)
{
    T a, b;
    for (size_t i = 0; i < count; i++) {
        memcpy(&a, (char *)into + i * sizeof a, sizeof a);
        memcpy(&b, (const char *)from + i * sizeof b, sizeof b);
        a = combine(a, b, op);
        memcpy((char *)into + i * sizeof a, &a, sizeof a);
    }
}

static void combine_halves(uint16_t *into, const uint16_t *from, size_t count, ncclRedOp_t op,
                           bool bf16)
{
    for (size_t i = 0; i < count; i++) {
        const float a = bf16 ? rt_of_bf16(into[i]) : rt_of_f16(into[i]);
        const float b = bf16 ? rt_of_bf16(from[i]) : rt_of_f16(from[i]);
        const float r = combine(a, b, op);
        into[i] = bf16 ? rt_to_bf16(r) : rt_to_f16(r);
    }
}

static void combine_type(void *into, const void *from, size_t count, ncclRedOp_t op,
                         ncclDataType_t type)
{
    switch (type) {
    case ncclInt8: combine_all<int8_t>(into, from, count, op); return;
    case ncclUint8: combine_all<uint8_t>(into, from, count, op); return;
    case ncclInt32: combine_all<int32_t>(into, from, count, op); return;
    case ncclUint32: combine_all<uint32_t>(into, from, count, op); return;
    case ncclInt64: combine_all<int64_t>(into, from, count, op); return;
    case ncclUint64: combine_all<uint64_t>(into, from, count, op); return;
    case ncclFloat32: combine_all<float>(into, from, count, op); return;
    case ncclFloat64: combine_all<double>(into, from, count, op); return;
    default:
        combine_halves((uint16_t *)into, (const uint16_t *)from, count, op, type == ncclBfloat16);
    }
}

template <typename T> static void divide(void *data, size_t count, int ranks)
{
    for (size_t i = 0; i < count; i++) {
        T x;
        memcpy(&x, (char *)data + i * sizeof x, sizeof x);
        x = (T)(x / (T)ranks);
        memcpy((char *)data + i * sizeof x, &x, sizeof x);
    }
}

static void average(void *data, size_t count, int ranks, ncclDataType_t type)
{
    uint16_t *h = (uint16_t *)data;
    switch (type) {
    case ncclInt8: divide<int8_t>(data, count, ranks); return;
    case ncclUint8: divide<uint8_t>(data, count, ranks); return;
    case ncclInt32: divide<int32_t>(data, count, ranks); return;
    case ncclUint32: divide<uint32_t>(data, count, ranks); return;
    case ncclInt64: divide<int64_t>(data, count, ranks); return;
    case ncclUint64: divide<uint64_t>(data, count, ranks); return;
    case ncclFloat32: divide<float>(data, count, ranks); return;
    case ncclFloat64: divide<double>(data, count, ranks); return;
    default:
        for (size_t i = 0; i < count; i++)
            h[i] = type == ncclBfloat16 ? rt_to_bf16(rt_of_bf16(h[i]) / (float)ranks)
                                        : rt_to_f16(rt_of_f16(h[i]) / (float)ranks);
    }
}

/* The elements from `first` on, of all ranks together. */
static void reduce(const NcclComm *c, const NcclWhat *what, size_t first, void *recv)
{
    const size_t size = nccl_size(what->type), bytes = (size_t)what->count * size;
    std::vector<char> total(bytes), other(bytes);
    for (int r = 0; r < c->ranks; r++) {
        take(c, r, r ? other.data() : total.data(), bytes, first * size);
        if (r)
            combine_type(total.data(), other.data(), what->count, what->op, what->type);
    }
    if (what->op == ncclAvg)
        average(total.data(), what->count, c->ranks, what->type);
    memcpy(recv, total.data(), bytes);
}

/* ---- collectives ----------------------------------------------------------------------------- */

/* Elements that this rank gives and gets. */
static size_t gives(const NcclComm *c, const NcclWhat *what)
{
    if (what->kind == NCCL_BROADCAST && c->rank != what->root)
        return 0;
    return what->count * (what->kind == NCCL_REDUCE_SCATTER ? (size_t)c->ranks : 1);
}

static size_t gets(const NcclComm *c, const NcclWhat *what)
{
    if (what->kind == NCCL_REDUCE && c->rank != what->root)
        return 0;
    return what->count * (what->kind == NCCL_ALL_GATHER ? (size_t)c->ranks : 1);
}

/* Nobody reads this rank's data of the last collective any more. */
static bool free_to_post(NcclComm *c, const char *what)
{
    const uint64_t last = c->control->slot[c->rank].posted;
    for (int r = 0; r < c->ranks; r++)
        if (c->control->slot[r].done < last) {
            nccl_wait(c, what, [c, last](int q) { return c->control->slot[q].done < last; });
            return false;
        }
    return true;
}

static void post(NcclComm *c, NcclPart *part)
{
    const size_t bytes = gives(c, &part->what) * nccl_size(part->what.type);
    NcclSlot *own = &c->control->slot[c->rank];
    if (bytes) {
        cudasim_reads(part->send, bytes, "send buffer");
        leave(c, part->send, bytes, 0);
    }
    own->what = part->what;
    own->posted += 1;
    part->step = 1;
}

/* Do all ranks have this collective posted? That it is the same one is checked of each. */
static bool all_posted(NcclComm *c, const NcclPart *part)
{
    const uint64_t number = c->control->slot[c->rank].posted;
    bool all = true;
    for (int r = 0; r < c->ranks; r++) {
        const NcclSlot *s = &c->control->slot[r];
        if (s->posted < number)
            all = false;
        else if (!same(&s->what, &part->what))
            cudasim_report("NCCL: collective number %llu differs: rank %d calls %s, rank %d %s",
                           (unsigned long long)number, c->rank, nccl_describe(&part->what).c_str(),
                           r, nccl_describe(&s->what).c_str());
    }
    if (!all)
        nccl_wait(c, nccl_kind_name(part->what.kind),
                  [c, number](int q) { return c->control->slot[q].posted < number; });
    return all;
}

static void finish(NcclComm *c, NcclPart *part)
{
    const NcclWhat *what = &part->what;
    const size_t size = nccl_size(what->type), bytes = gets(c, what) * size;
    char *recv = (char *)part->recv;
    if (bytes)
        cudasim_writes(recv, bytes, "receive buffer");
    if (bytes && reduces(what->kind))
        reduce(c, what, what->kind == NCCL_REDUCE_SCATTER ? what->count * (size_t)c->rank : 0,
               recv);
    else if (bytes && what->kind == NCCL_BROADCAST)
        take(c, what->root, recv, bytes, 0);
    else if (bytes)
        for (int r = 0; r < c->ranks; r++)
            take(c, r, recv + (size_t)r * what->count * size, what->count * size, 0);
    c->control->slot[c->rank].done += 1;
    part->step = 2;
}

static bool run_collective(NcclComm *c, NcclPart *part)
{
    if (part->step == 0) {
        if (!free_to_post(c, nccl_kind_name(part->what.kind)))
            return false;
        post(c, part);
        nccl_went_on(c);
    }
    if (part->step == 1) {
        if (!all_posted(c, part))
            return false;
        finish(c, part);
        nccl_went_on(c);
    }
    return true;
}

/* ---- sends and receives ---------------------------------------------------------------------- */

static bool post_sends(NcclOperation *o)
{
    NcclComm *c = o->comm.get();
    NcclSlot *own = &c->control->slot[c->rank];
    uint64_t at = 0;
    uint32_t n = 0;
    if (!free_to_post(c, "ncclSend and ncclRecv"))
        return false;
    for (size_t i = 0; i < o->parts.size(); i++) {
        NcclPart *part = &o->parts[i];
        if (part->what.kind != NCCL_SEND)
            continue;
        const size_t bytes = part->what.count * nccl_size(part->what.type);
        if (n == NCCL_MAX_SENDS)
            cudasim_report("not modelled: more than %d ncclSend in a group", NCCL_MAX_SENDS);
        cudasim_reads(part->send, bytes, "send buffer");
        leave(c, part->send, bytes, at);
        own->sends[n].what = part->what;
        own->sends[n].at = at;
        own->sends[n].taken = 0;
        part->entry = (int)n++;
        at += bytes;
    }
    own->n_sends = n;
    o->sent = true;
    return true;
}

/* The sender's first entry for this rank that was not taken. */
static bool run_recv(NcclComm *c, NcclPart *part)
{
    NcclSlot *from = &c->control->slot[part->what.root];
    const uint32_t n = from->n_sends;
    for (uint32_t i = 0; i < n; i++) {
        NcclSend *s = &from->sends[i];
        if (s->taken || s->what.root != c->rank)
            continue;
        if (s->what.count != part->what.count || s->what.type != part->what.type)
            cudasim_report("NCCL: rank %d calls %s, rank %d %s", part->what.root,
                           nccl_describe(&s->what).c_str(), c->rank,
                           nccl_describe(&part->what).c_str());
        const size_t bytes = part->what.count * nccl_size(part->what.type);
        cudasim_writes(part->recv, bytes, "receive buffer");
        take(c, part->what.root, part->recv, bytes, s->at);
        s->taken = 1;
        return true;
    }
    return false;
}

/* A send or a receive with this rank is left, and there is nothing of it to receive. */
static bool waits_for(const NcclOperation *o, int rank)
{
    const NcclComm *c = o->comm.get();
    const NcclSlot *from = &c->control->slot[rank];
    uint32_t offered = 0;
    for (uint32_t i = 0; i < from->n_sends; i++)
        offered += !from->sends[i].taken && from->sends[i].what.root == c->rank;
    for (size_t i = 0; i < o->parts.size(); i++) {
        const NcclPart *part = &o->parts[i];
        if (part->step < 2 && part->what.root == rank
            && (part->what.kind == NCCL_SEND || (part->what.kind == NCCL_RECV && !offered)))
            return true;
    }
    return false;
}

/* All sends and receives of a group go on side by side; a send is done when it was received. */
static bool run_pairs(NcclOperation *o)
{
    NcclComm *c = o->comm.get();
    NcclSlot *own = &c->control->slot[c->rank];
    bool all = true;
    if (!o->sent && !post_sends(o))
        return false;
    for (size_t i = 0; i < o->parts.size(); i++) {
        NcclPart *part = &o->parts[i];
        if (part->step == 2 || part->what.kind < NCCL_SEND)
            continue;
        if (part->what.kind == NCCL_SEND ? own->sends[part->entry].taken != 0 : run_recv(c, part)) {
            part->step = 2;
            nccl_went_on(c);
        } else {
            all = false;
        }
    }
    if (all)
        own->n_sends = 0;
    else
        nccl_wait(c, "ncclSend and ncclRecv", [o](int q) { return waits_for(o, q); });
    return all;
}

/* ---- one operation --------------------------------------------------------------------------- */

static bool has_pairs(const NcclOperation *o)
{
    for (size_t i = 0; i < o->parts.size(); i++)
        if (o->parts[i].what.kind >= NCCL_SEND)
            return true;
    return false;
}

static void reset(NcclOperation *o) /* a graph runs it again */
{
    o->sent = false;
    for (size_t i = 0; i < o->parts.size(); i++)
        o->parts[i].step = 0;
}

bool nccl_run(NcclOperation *o)
{
    NcclComm *c = o->comm.get();
    if (c->aborted)
        return true;
    if (o->ticketed && o->ticket != c->finished)
        return false; /* another stream comes first */
    for (size_t i = 0; i < o->parts.size(); i++)
        if (o->parts[i].what.kind < NCCL_SEND && o->parts[i].step < 2
            && !run_collective(c, &o->parts[i]))
            return false;
    if (has_pairs(o) && !run_pairs(o))
        return false;
    if (o->ticketed)
        c->finished++;
    reset(o);
    return true;
}
