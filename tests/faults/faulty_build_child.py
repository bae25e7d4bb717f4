"""A build child without torch or triton: the text of a module says what its build does."""

import os
import signal
import subprocess
import time

from tilewright.children import wire

built = []


def build(payload):
    text = payload["text"]
    if text == "hang":
        time.sleep(600)
    if text == "grandchild":
        subprocess.run(["sleep", "86394"], check=False)
    if text == "abort":
        print("LLVM ERROR: cannot select", flush=True)
        os.kill(os.getpid(), signal.SIGABRT)
        time.sleep(600)
    if text == "raise":
        raise ValueError("a fault of our own")
    if text == "full":
        return {"host_fault": "OSError: [Errno 28] No space left on device"}
    if text == "mlir":
        os.write(2, b"source.py:7:4: error: operand #0 does not dominate this use\n")
        return {"status": "compile_error", "message": "RuntimeError: PassManager::run failed", "build_s": 0.1}
    if text == "killed":
        return {"status": "compile_error", "message": "PTXASError", "transient": True, "build_s": 0.1}
    if text.startswith("slow"):
        time.sleep(0.3)
    built.append(text)
    resources = {"shared_memory_bytes": payload["target"]["shared_memory_bytes"] - 1, "num_warps": 4}
    return {"status": "ok", "message": f"{os.getpid()} {len(built)}", "resources": resources, "binary": "b" * 64, "files": [], "build_s": 0.5}


if __name__ == "__main__":
    wire.serve({"build": build}, {"triton": "3.6.0", "ptxas": "12.9", "torch": "2.11.0", "triton_key": "k", "environment": dict(os.environ)})
