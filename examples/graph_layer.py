"""Shows: a graph network on Zachary's karate club (1977): the two sides of its split found from two labelled members."""
import networkx as nx
import numpy as np
import plotting

import graphdiff as gd


def main():
    club = nx.karate_club_graph()
    side = np.array([club.nodes[i]["club"] == "Officer" for i in club]).astype("int64")
    edges = np.array([(a, b) for a, b in club.edges] + [(b, a) for a, b in club.edges])
    senders, receivers = edges.T
    one = gd.nn.GraphLayer(34, 16, "tanh", key=1, how="mean", name="first")
    two = gd.nn.GraphLayer(16, 2, None, key=2, how="mean", name="second")
    h, _, _ = one(gd.constant(np.eye(34, dtype="float32")), senders, receivers)
    z, _, _ = two(h, senders, receivers)
    labelled = np.array([0, 33])      # the instructor and the president
    loss = gd.losses.cross_entropy(z[labelled], gd.constant(side[labelled])) + 0.003 * gd.losses.l2([*one.parameters(), *two.parameters()])
    step = gd.function([], loss, updates=gd.optim.Adam(0.02).updates(loss, [*one.parameters(), *two.parameters()]))
    for _ in range(200):
        value = step()
    found = gd.evaluate(gd.argmax(z, axis=1), {})
    right = int((found == side).sum())
    print(f"loss {float(value):.4f}; {right} of 34 members are on their side, two of whom were told")

    def draw(axes):
        places = nx.spring_layout(club, seed=1)
        nx.draw_networkx(club, places, ax=axes, node_color=["tab:blue" if f else "tab:orange" for f in found], node_size=220, font_size=7,
                         edge_color="lightgray")
        axes.set_title("sides found from members 0 and 33")
    plotting.save("graph_layer.svg", draw)
    gd.draw(loss).save("graph_layer_graph.svg")
    return {"right": right}


if __name__ == "__main__":
    main()
