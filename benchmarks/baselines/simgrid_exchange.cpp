// Flows that begin together, in SimGrid 3.32 (Debian's libsimgrid-dev): their ends by fair shares of links alone.
//
// Reads, from standard input: the number of hosts, of links and of flows; of each link its bytes/s; of each flow its
// source, its target, its bytes, how many links it crosses and which. No two flows have the same source and target.
// Writes the seconds until each flow has ended, in their order. What sharing leaves out is left out: links have no
// latency, and SimGrid's options (CM02 with factors of 1, no TCP window, no cross-traffic) are given by the caller.

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include <simgrid/s4u.hpp>

namespace sg4 = simgrid::s4u;

struct Flow {
  int source;
  int target;
  double bytes;
};

int main(int argc, char** argv)
{
  sg4::Engine engine(&argc, argv);
  int host_count;
  int link_count;
  int flow_count;
  std::cin >> host_count >> link_count >> flow_count;

  auto* zone = sg4::create_full_zone("cluster");
  std::vector<sg4::Host*> hosts;
  for (int rank = 0; rank < host_count; rank++)
    hosts.push_back(zone->create_host("rank" + std::to_string(rank), 1e9)->seal());
  std::vector<const sg4::Link*> links;
  for (int number = 0; number < link_count; number++) {
    double bytes_per_s;
    std::cin >> bytes_per_s;
    links.push_back(zone->create_link("link" + std::to_string(number), bytes_per_s)->set_latency(0)->seal());
  }
  std::vector<Flow> flows(flow_count);
  for (auto& flow : flows) {
    int crossed;
    std::cin >> flow.source >> flow.target >> flow.bytes >> crossed;
    std::vector<sg4::LinkInRoute> route;
    for (int i = 0; i < crossed; i++) {
      int number;
      std::cin >> number;
      route.emplace_back(links[number]);
    }
    zone->add_route(hosts[flow.source]->get_netpoint(), hosts[flow.target]->get_netpoint(), nullptr, nullptr, route,
                    false);
  }
  zone->seal();

  std::vector<sg4::CommPtr> comms;
  sg4::Actor::create("all", hosts[0], [&]() {
    for (const auto& flow : flows)
      comms.push_back(sg4::Comm::sendto_async(hosts[flow.source], hosts[flow.target], flow.bytes));
    for (const auto& comm : comms)
      comm->wait();
  });
  engine.run();
  for (const auto& comm : comms)
    std::printf("%.9f\n", comm->get_finish_time());
  return 0;
}
