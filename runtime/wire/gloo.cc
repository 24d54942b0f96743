// gloo.cc -- the back end over Gloo: TCP between processes that the store has brought together.
//
// In: bytes. Out: bytes of other ranks. Gloo throws where a peer is lost or late; here that becomes
// a text.
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allgatherv.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

extern "C" {
#include "wire/wire.h"
}

namespace
{

// Gloo's rendezvous over the store of gradcc.
class Names : public gloo::rendezvous::Store
{
  public:
    explicit Names(const RtWireOpen &open) : open_(open) {}

    void set(const std::string &key, const std::vector<char> &data) override
    {
        open_.set(("gloo/" + key).c_str(), data.data(), data.size());
    }

    std::vector<char> get(const std::string &key) override
    {
        size_t n = 0;
        char *value = open_.get(("gloo/" + key).c_str(), &n);
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
        wait(keys);
    }

  private:
    const RtWireOpen open_;
};

std::shared_ptr<gloo::rendezvous::Context> context;
std::string text, version;
uint32_t tag;

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

const char *wire_open(RtWireOpen *o)
{
    return guarded([o] {
        gloo::transport::tcp::attr at;
        if (o->interface)
            at.iface = o->interface;
        else
            at.hostname = o->address;
        auto device = gloo::transport::tcp::CreateDevice(at);
        Names names(*o);
        context = std::make_shared<gloo::rendezvous::Context>(o->rank, o->size);
        context->setTimeout(std::chrono::milliseconds((long long)(o->timeout * 1e3)));
        context->connectFullMesh(names, device);
        version = "Gloo, " + device->str();
        o->text = version.c_str();
    });
}

const char *wire_scatter_gather(const void *from, const size_t *at, const size_t *n, void *to,
                                size_t each)
{
    return guarded([=] {
        const size_t size = (size_t)context->size;
        std::vector<int64_t> out(size), in(size, (int64_t)each);
        // Gloo wants the shares of ranks one behind the other, as they are here
        for (size_t r = 0; r < size; r++)
            out[r] = (int64_t)n[r];
        gloo::AlltoallvOptions o(context);
        o.setInput((char *)from + at[0], out);
        o.setOutput((char *)to, in);
        o.setTag(tag++);
        gloo::alltoallv(o);
    });
}

const char *wire_all_gather(void *base, const size_t *at, const size_t *n)
{
    return guarded([=] {
        std::vector<size_t> counts(n, n + (size_t)context->size);
        gloo::AllgathervOptions o(context); // no input: it is in place
        o.setOutput((char *)base + at[0], counts);
        o.setTag(tag++);
        gloo::allgatherv(o);
    });
}

const char *wire_broadcast(void *at, size_t n, int root)
{
    return guarded([=] {
        gloo::BroadcastOptions o(context);
        o.setOutput((char *)at, n);
        o.setRoot(root);
        o.setTag(tag++);
        gloo::broadcast(o);
    });
}

const char *wire_barrier(void)
{
    return guarded([] {
        gloo::BarrierOptions o(context);
        o.setTag(tag++);
        gloo::barrier(o);
    });
}

void wire_close(void) { context.reset(); }

} // namespace

extern "C" const RtWire rt_wire = {
    .abi = RT_WIRE_ABI,
    .name = "gloo",
    .open = wire_open,
    .scatter_gather = wire_scatter_gather,
    .all_gather = wire_all_gather,
    .broadcast = wire_broadcast,
    .barrier = wire_barrier,
    .close = wire_close,
};
