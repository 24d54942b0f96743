// gloo.cc -- the back end over Gloo: TCP between processes that the store has brought together.
//
// In: bytes. Out: bytes of other ranks. Gloo throws where a peer is lost or late; here that becomes
// a text.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

extern "C" {
#include "wire/wire.h"
}

#define TEXT(number)   #number
#define NUMBER(number) TEXT(number)

namespace
{

// Gloo's rendezvous over the store of gradcc; each group has names of its own.
class Names : public gloo::rendezvous::Store
{
  public:
    Names(const RtWireOpen &open, std::string group) : open_(open), group_(std::move(group)) {}

    void set(const std::string &key, const std::vector<char> &data) override
    {
        open_.set(name(key).c_str(), data.data(), data.size());
    }

    std::vector<char> get(const std::string &key) override
    {
        size_t n = 0;
        char *value = open_.get(name(key).c_str(), &n);
        std::vector<char> data(value, value + n);
        free(value);
        return data;
    }

    void wait(const std::vector<std::string> &keys) override
    {
        for (const auto &key : keys)
            (void)get(key);
    }

    void wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &) override
    {
        wait(keys); // the store has a deadline of its own
    }

  private:
    std::string name(const std::string &key) const { return "gloo/" + group_ + "/" + key; }

    const RtWireOpen open_;
    const std::string group_;
};

// Of all but connecting: the runtime watches over each call, and knows how long it may take.
constexpr std::chrono::milliseconds ever = std::chrono::hours(24 * 365);

// Slots above those of Gloo's own algorithms: of exchanges, and of what one rank sends another.
constexpr uint64_t exchanges = uint64_t(1) << 61, pairs = uint64_t(1) << 62;

struct Group {
    std::shared_ptr<gloo::rendezvous::Context> context;
    std::string name;
    uint32_t tag = 0; // of exchanges, one behind the other
    int parts = 0;    // splits so far
};

RtWireOpen opened;
std::shared_ptr<gloo::transport::Device> device;
Group world;
std::string text, over;

Group &of(void *group) { return group ? *static_cast<Group *>(group) : world; }

template <typename Call> const char *guarded(Call call)
{
    try {
        call();
        return nullptr;
    } catch (const std::exception &error) {
        text = error.what();
        return text.c_str();
    }
}

void connect(Group &g, int rank, int size)
{
    Names names(opened, g.name);
    g.context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    g.context->setTimeout(std::chrono::milliseconds((long long)(opened.timeout * 1e3)));
    g.context->connectFullMesh(names, device);
}

const char *wire_open(RtWireOpen *o)
{
    return guarded([o] {
        gloo::transport::tcp::attr at;
        if (o->interface)
            at.iface = o->interface;
        else
            at.hostname = o->address;
        opened = *o;
        device = gloo::transport::tcp::CreateDevice(at);
        world.name = "world";
        connect(world, o->rank, o->size);
        o->version = "Gloo " NUMBER(GLOO_VERSION_MAJOR) "." NUMBER(GLOO_VERSION_MINOR) "." NUMBER(
            GLOO_VERSION_PATCH);
        over = std::string(o->version) + " over " + (o->interface ? o->interface : o->address);
        o->text = over.c_str();
    });
}

// An exchange's sends and receipts, by slots of its own; at[r] and n[r]: what rank r is sent of
// `from`; to_at[r] and to_n[r]: where what it sends goes in `to`.
void exchange(Group &g, const void *from, const size_t *at, const size_t *n, void *to,
              const size_t *to_at, const size_t *to_n)
{
    const int size = g.context->size, me = g.context->rank;
    const uint64_t slot = exchanges + g.tag++;
    size_t out_bytes = 0, in_bytes = 0;
    for (int r = 0; r < size; r++) {
        out_bytes = std::max(out_bytes, at[r] + n[r]);
        in_bytes = std::max(in_bytes, to_at[r] + to_n[r]);
    }
    auto out = g.context->createUnboundBuffer(const_cast<void *>(from), out_bytes);
    auto in = g.context->createUnboundBuffer(to, in_bytes);
    int sent = 0, received = 0;
    for (int i = 1; i < size; i++) {
        const int next = (me + i) % size, last = (me + size - i) % size;
        if (to_n[last] > 0)
            in->recv(last, slot, to_at[last], to_n[last]), received++;
        if (n[next] > 0)
            out->send(next, slot, at[next], n[next]), sent++;
    }
    if (n[me] > 0
        && static_cast<char *>(to) + to_at[me] != static_cast<const char *>(from) + at[me])
        memcpy(static_cast<char *>(to) + to_at[me], static_cast<const char *>(from) + at[me],
               n[me]);
    while (received-- > 0)
        in->waitRecv(ever);
    while (sent-- > 0)
        out->waitSend(ever);
}

const char *wire_scatter_gather(void *group, const void *from, const size_t *at, const size_t *n,
                                void *to, size_t each)
{
    return guarded([=] {
        Group &g = of(group);
        std::vector<size_t> to_at((size_t)g.context->size), to_n(to_at.size(), each);
        for (size_t r = 0; r < to_at.size(); r++)
            to_at[r] = r * each;
        exchange(g, from, at, n, to, to_at.data(), to_n.data());
    });
}

const char *wire_all_gather(void *group, void *base, const size_t *at, const size_t *n)
{
    return guarded([=] {
        Group &g = of(group);
        const size_t size = (size_t)g.context->size, me = (size_t)g.context->rank;
        const std::vector<size_t> own_at(size, at[me]), own_n(size, n[me]);
        exchange(g, base, own_at.data(), own_n.data(), base, at, n);
    });
}

// Every rank of the group tells its colour; who has the same one meets again.
const char *wire_split(void *group, int colour, int rank, void **part)
{
    Group &g = of(group);
    const size_t size = (size_t)g.context->size;
    std::vector<int> colours(size, colour);
    std::vector<size_t> at(size), n(size, sizeof(int));
    for (size_t r = 0; r < size; r++)
        at[r] = r * sizeof(int);
    if (const char *wrong = wire_all_gather(group, colours.data(), at.data(), n.data()))
        return wrong;
    return guarded([&] {
        auto *made = new Group;
        int members = 0, number = 0;
        for (size_t r = 0; r < size; r++) {
            members += colours[r] == colour;
            number += colours[r] == colour && (int)r < rank;
        }
        made->name = g.name + "/" + std::to_string(g.parts++) + "." + std::to_string(colour);
        connect(*made, number, members);
        *part = made;
    });
}

void wire_free(void *part) { delete static_cast<Group *>(part); }

const char *wire_broadcast(void *group, void *at, size_t n, int root)
{
    return guarded([=] {
        Group &g = of(group);
        gloo::BroadcastOptions o(g.context);
        o.setOutput(static_cast<char *>(at), n);
        o.setRoot(root);
        o.setTag(g.tag++);
        o.setTimeout(ever);
        gloo::broadcast(o);
    });
}

const char *wire_send(void *group, const void *at, size_t n, int to)
{
    return guarded([=] {
        auto b = of(group).context->createUnboundBuffer(const_cast<void *>(at), n);
        b->send(to, pairs);
        b->waitSend(ever);
    });
}

const char *wire_recv(void *group, void *at, size_t n, int from)
{
    return guarded([=] {
        auto b = of(group).context->createUnboundBuffer(at, n);
        b->recv(from, pairs);
        b->waitRecv(ever);
    });
}

const char *wire_barrier(void *group)
{
    return guarded([=] {
        Group &g = of(group);
        gloo::BarrierOptions o(g.context);
        o.setTag(g.tag++);
        o.setTimeout(ever);
        gloo::barrier(o);
    });
}

void wire_close(void)
{
    world.context.reset();
    device.reset();
}

} // namespace

extern "C" const RtWire rt_wire = {
    .abi = RT_WIRE_ABI,
    .name = "gloo",
    .open = wire_open,
    .meet = nullptr,
    .abort = nullptr,
    .split = wire_split,
    .free = wire_free,
    .scatter_gather = wire_scatter_gather,
    .all_gather = wire_all_gather,
    .broadcast = wire_broadcast,
    .send = wire_send,
    .recv = wire_recv,
    .barrier = wire_barrier,
    .close = wire_close,
};
