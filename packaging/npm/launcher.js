#!/usr/bin/env node
// Starts the binary of this platform, which npm installed as an optional dependency.
"use strict";
const { spawn } = require("node:child_process");

const name = `maru-${process.platform}-${process.arch}`;
const file = process.platform === "win32" ? "maru.exe" : "maru";

function fail(message) {
  console.error(`maru: ${message}`);
  process.exit(2);
}

let binary;
try {
  binary = require.resolve(`${name}/bin/${file}`);
} catch {
  fail(
    `there is no package ${name}. Install without --omit=optional, or build maru from ` +
      "source (cargo build --release).",
  );
}
const program = spawn(binary, process.argv.slice(2), { stdio: "inherit" });
program.on("error", (error) => fail(`${binary} could not be started: ${error.message}`));
program.on("exit", (code, signal) => process.exit(signal ? 1 : code));
// A supervisor signals this process only; a terminal signals both, which does no harm.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => program.kill(signal));
}
