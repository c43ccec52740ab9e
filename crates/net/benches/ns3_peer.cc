// The path of the network benchmark on ns-3's events and packets: prints packets per CPU-second.
//
// The peer of `cargo bench -p takt-net -- --ns3`, with the same numbers as simpy_peer.py and network.rs. ns-3 has
// no queue in EDF order, no bucket whose tokens go negative and no link with random delays. So they are written
// here, on ns3::Simulator and ns3::Packet. The port's queue is ns-3's own DropTailQueue.
//
// Build: c++ -O2 ns3_peer.cc $(pkg-config --cflags --libs ns3-network)

#include <ns3/core-module.h>
#include <ns3/network-module.h>

#include <ctime>
#include <iostream>
#include <queue>

using namespace ns3;

namespace {

const int64_t flowCount = 10, period = 1'000'000, packetCount = 1'000'000;
const int64_t bitsPerByteNs = 8'000'000'000;

int64_t Duration(int64_t size, int64_t rate) { return (size * bitsPerByteNs + rate - 1) / rate; }

int64_t Now() { return Simulator::Now().GetNanoSeconds(); }

template <typename F, typename... Args>
EventId After(int64_t ns, F f, Args... args) { return Simulator::Schedule(NanoSeconds(ns), f, args...); }

// A port of 100 Mbit, first come, first served.
class Port
{
  public:
    Port() : m_queue(CreateObject<DropTailQueue<Packet>>()) { m_queue->SetMaxSize(QueueSize("1000p")); }

    void Arrive(Ptr<Packet> packet)
    {
        if (!m_queue->Enqueue(packet)) { NS_FATAL_ERROR("the port overflows"); }
        if (!m_busy) { Begin(); }
    }

  private:
    void Begin()
    {
        Ptr<Packet> packet = m_queue->Dequeue();
        m_busy = packet != nullptr;
        if (packet) { After(Duration(packet->GetSize(), 100'000'000), &Port::End, this, packet); }
    }

    void End(Ptr<Packet> packet)
    {
        if (packet->GetSize() == 400 && ++m_left == packetCount) { Simulator::Stop(); }
        Begin();
    }

    Ptr<DropTailQueue<Packet>> m_queue;
    bool m_busy = false;
    int64_t m_left = 0;
};

// A delay of 50 to 80 us that keeps the order, and the 10 us of the port.
class Link
{
  public:
    Link(Port& port, Ptr<UniformRandomVariable> draw) : m_port(port), m_draw(draw) {}

    void Send(Ptr<Packet> packet)
    {
        m_last = std::max(m_last, Now() + static_cast<int64_t>(m_draw->GetInteger(50'000, 80'000)));
        After(m_last - Now() + 10'000, &Port::Arrive, &m_port, packet);
    }

  private:
    Port& m_port;
    Ptr<UniformRandomVariable> m_draw;
    int64_t m_last = 0;
};

// The earliest deadline first through a bucket with HTB's rule, above a background that is busy for 1 ms of 10.
class Egress
{
  public:
    explicit Egress(Link& link) : m_link(link) { Decide(); }

    void Push(int64_t deadline, Ptr<Packet> packet)
    {
        m_heap.emplace(-deadline, -m_number++, packet);
        if (!m_busy) { Decide(); }
    }

  private:
    using Entry = std::tuple<int64_t, int64_t, Ptr<Packet>>;

    struct Less
    {
        bool operator()(const Entry& a, const Entry& b) const
        {
            return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
        }
    };

    void Decide()
    {
        m_busy = false;
        m_wait.Cancel();
        const int64_t now = Now();
        m_tokens = std::min(burst, m_tokens + rate * (now - m_at));
        m_at = now;
        const int64_t into = now % 10'000'000;
        if (!m_heap.empty() && m_tokens >= 0) {
            Ptr<Packet> packet = std::get<2>(m_heap.top());
            m_heap.pop();
            m_tokens -= 400 * bitsPerByteNs;
            m_busy = true;
            After(Duration(400, line), &Egress::End, this, packet);
        } else if (into < 1'000'000) {
            m_busy = true;
            After(Duration(1'500, line), &Egress::Decide, this);
        } else {
            int64_t wait = 10'000'000 - into;
            if (!m_heap.empty()) { wait = std::min(wait, (-m_tokens + rate - 1) / rate); }
            m_wait = After(wait, &Egress::Decide, this);
        }
    }

    void End(Ptr<Packet> packet)
    {
        m_link.Send(packet);
        Decide();
    }

    static constexpr int64_t rate = 40'000'000, burst = 1'000 * bitsPerByteNs, line = 1'000'000'000;
    Link& m_link;
    std::priority_queue<Entry, std::vector<Entry>, Less> m_heap;
    int64_t m_tokens = burst, m_at = 0, m_number = 0;
    bool m_busy = false;
    EventId m_wait;
};

class Traffic
{
  public:
    Traffic(Egress& egress, Port& port, Ptr<UniformRandomVariable> draw) : m_egress(egress), m_port(port), m_draw(draw)
    {
        Flows();
        Others();
    }

  private:
    void Flows()
    {
        for (int64_t flow = 0; flow < flowCount; flow++, m_sent++) {
            m_egress.Push(Now() + m_draw->GetInteger(0, period - 1), Create<Packet>(400));
        }
        if (m_sent < packetCount) { After(period, &Traffic::Flows, this); }
    }

    void Others()
    {
        for (int frame = 0; frame < 10; frame++) { m_port.Arrive(Create<Packet>(1'500)); }
        After(Duration(15'000, 40'000'000), &Traffic::Others, this);
    }

    Egress& m_egress;
    Port& m_port;
    Ptr<UniformRandomVariable> m_draw;
    int64_t m_sent = 0;
};

}  // namespace

int main()
{
    auto draw = CreateObject<UniformRandomVariable>();
    Port port;
    Link link(port, draw);
    Egress egress(link);
    Traffic traffic(egress, port, draw);
    const std::clock_t before = std::clock();
    Simulator::Run();
    std::cout << packetCount / (static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC) << std::endl;
    Simulator::Destroy();
}
