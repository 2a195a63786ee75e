"""A rank on one of several machines: trains each case to its end and prints the weights' hashes, as rank 0.

Its recipes are given as JSON on the command line; who it is, by the environment.
"""

import json
import sys

import numpy as np

from unisono.comm.topology.shared_machine import node_colour
from unisono.environment.os_environ import detect
from unisono.launch.connect import connect
from unisono.messages.rank_reports import EpochRecord
from unisono.recipe import Recipe
from unisono.runs.launched_training import train_launched
from unisono.runs.supervised_training import RunPlaces
from unisono.training.job import prepare
from unisono.world import World

if __name__ == "__main__":
    found = []
    with connect(detect(), "auto", 60.0) as comm:
        nodes = comm.all_gather(np.array([node_colour(comm)]))[:, 0].tolist()
        for given in json.loads(sys.argv[1]):
            epochs = []
            job = prepare(Recipe.from_options(**given, ranks=comm.size))
            ended = train_launched(World(comm, epochs.append), job, RunPlaces())
            sent = [
                record.metrics["sent_bytes_per_step"]
                for record in epochs
                if isinstance(record, EpochRecord) and len(set(nodes)) > 1
            ]
            found.append([ended["weights_sha256"], max(sent, default=0), 4 * job.model().layout.length])
    if comm.rank == 0:
        print(json.dumps({"nodes": nodes, "found": found}), flush=True)
