// SPDX-License-Identifier: MIT
//
// The JavaScript side of the comparison: node-redlock on ioredis, used as its
// documents say. A chain of promises for each that wants a lock.
//
//   node peer.cjs node-redlock URL
//
// Orders come one a line on standard input; see peers/run.py.
"use strict";
const fs = require("fs");
const readline = require("readline");
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const LEASE_MS = 30000;
const kept = [];

if (process.argv.length !== 4 || process.argv[2] !== "node-redlock") {
  console.error("usage: peer.cjs node-redlock URL");
  process.exit(2);
}
const client = new Redis(process.argv[3]);
const redlock = new Redlock([client], { retryCount: -1 });
redlock.on("error", () => {}); // each vain attempt is told here

// The clock that all processes share.
const now = () => process.hrtime.bigint();

const sleep = (us) =>
  us > 0 ? new Promise((done) => setTimeout(done, us / 1000)) : undefined;

function readOrder(text) {
  const w = text.trim().split(/ +/);
  return {
    verb: w[0], kind: w[1], n: Number(w[2]), ms: Number(w[3]), name: w[4],
    hold: Number(w[5] || 0), pause: Number(w[6] || 0), file: w[7],
  };
}

// Runs the body n times side by side, for so long; gives the sum.
async function crew(o, body) {
  const running = { stop: false };
  setTimeout(() => (running.stop = true), o.ms);
  const counts = await Promise.all(
    Array.from({ length: o.n }, (_, who) => body(who, running)));
  return counts.reduce((a, b) => a + b, 0);
}

// Each of n with a lock of its own.
const pairs = (o) => crew(o, async (who, running) => {
  const names = [o.name + who];
  let count = 0;
  for (; !running.stop; count++) {
    const lock = await redlock.acquire(names, LEASE_MS);
    await lock.release();
  }
  return count;
});

// All of n want one lock; each hold is noted.
async function contend(o) {
  const log = [];
  const count = await crew(o, async (who, running) => {
    let holds = 0;
    for (; !running.stop; holds++) {
      const asked = now();
      const lock = await redlock.acquire([o.name], LEASE_MS);
      const got = now();
      await sleep(o.hold);
      const end = now();
      await lock.release();
      log.push(`${who} ${asked} ${got} ${end}\n`);
      await sleep(o.pause);
    }
    return holds;
  });
  fs.writeFileSync(o.file, log.join(""));
  return count;
}

async function run(o) {
  switch (o.verb) {
    case "pairs":
      return pairs(o);
    case "contend":
      return contend(o);
    case "hold":
      for (let i = 0; i < o.n; i++)
        kept.push(await redlock.acquire([o.name + i], LEASE_MS));
      return o.n;
    case "wait":
      for (let i = 0; i < o.n; i++) redlock.acquire([o.name], LEASE_MS);
      return o.n;
    default:
      throw new Error(`unknown order ${o.verb}`);
  }
}

async function main() {
  await (await redlock.acquire(["peers:warm"], LEASE_MS)).release();
  console.log('{"ready": true}');
  for await (const text of readline.createInterface({ input: process.stdin })) {
    const o = readOrder(text);
    if (o.verb === "quit") break;
    const start = now();
    const count = await run(o);
    const seconds = Number(now() - start) / 1e9;
    console.log(JSON.stringify({ count, seconds }));
  }
  process.exit(0);
}

main();
