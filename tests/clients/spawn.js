// The SDK starts a server of its own, and stops it: it runs whatever is called `opencode`. Which of its two clients
// does is told to this script.

import * as v1 from "@opencode-ai/sdk";
import * as v2 from "@opencode-ai/sdk/v2";
import { brief, report } from "./report.js";

async function isThere(url) {
  try {
    return (await fetch(`${url}/global/health`)).ok;
  } catch {
    return false;
  }
}

/** Waits until nobody listens there any more. */
async function gone(url) {
  for (let tries = 0; tries < 600; tries += 1) {
    if (!(await isThere(url))) return true;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return false;
}

const [, , which] = process.argv;
const sdk = { v1, v2 }[which];
const { client, server } = await sdk.createOpencode({ port: 0, config: { logLevel: "WARN" } });
const before = await isThere(server.url);
const parts = [{ type: "text", text: "Are you there?" }];
const flat = which === "v2";
const { data: session } = await client.session.create(flat ? { title: "Spawned" } : { body: { title: "Spawned" } });
const prompt = flat ? { sessionID: session.id, parts } : { path: { id: session.id }, body: { parts } };
const { data: answer } = await client.session.prompt(prompt);
server.close();

report({ before, answer: brief(answer), gone: await gone(server.url) });
