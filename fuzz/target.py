"""The server under test, in its own process: ``python -m fuzz.target`` prints its port, its pid and its CA."""

import asyncio
import gc
import json
import os
import sys
from datetime import UTC, datetime

from bench.review import HOST, cluster
from kavip import telemetry
from kavip.pki import certificates
from kavip.webhook import server
from kavip.webhook.server import WebhookServer

SERVICES = 200


async def main() -> None:
    """Serve until standard input ends."""
    telemetry.configure_logging("warning", "text")
    server.WAIT_FOR_REFERENCES = 0.0  # type: ignore[misc]  # no object will arrive, so a wait would dominate the measured time
    now = datetime.now(UTC)
    ca = certificates.new_ca(now)
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    target = WebhookServer(cluster(SERVICES))
    target.serve_certificate(certificates.new_leaf(ca, [HOST], now))
    port = await target.start(HOST, 0)
    print(json.dumps({"port": port, "pid": os.getpid(), "ca": ca.certificate_pem.decode()}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await target.stop()
    samples = [sample for metric in telemetry.REVIEWS.collect() for sample in metric.samples]
    errors = sum(
        sample.value for sample in samples if sample.name.endswith("_total") and sample.labels["verdict"] == "error"
    )
    gc.collect()  # an abandoned task reports its exception when it is collected
    for fault in faults:
        print(fault, file=sys.stderr)
    print(json.dumps({"errors": int(errors) + len(faults)}), flush=True)


asyncio.run(main())
