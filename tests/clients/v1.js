// The first client of @opencode-ai/sdk: all that a program does with a session.

import { createOpencodeClient } from "@opencode-ai/sdk";
import { brief, directory, follow, open, refusal, report, server } from "./report.js";

const client = createOpencodeClient({ baseUrl: server, directory, throwOnError: true });
const data = async (request) => (await request).data;
const seen = {};

seen.agents = (await data(client.app.agents())).map(({ name }) => name);
seen.model = (await data(client.config.get())).model;
seen.default = (await data(client.config.providers())).default;
seen.connected = (await data(client.provider.list())).connected;
seen.directory = (await data(client.path.get())).directory;
seen.worktree = (await data(client.project.current())).worktree;
seen.projects = (await data(client.project.list())).map(({ worktree }) => worktree);
seen.tools = await data(client.tool.ids());
seen.described = (await data(client.tool.list({ query: { provider: "local", model: "m" } }))).map(({ id }) => id);
seen.commands = await data(client.command.list());

// A turn with a permission, as its events and its answer tell it.
const events = await open(await client.event.subscribe());
const { id } = await data(client.session.create({ body: { title: "By the SDK" } }));
const path = { id };
const over = (event) => event.type === "session.idle" && event.properties.sessionID === id;
const following = follow(events, over, async ({ type, properties }) => {
  if (type !== "permission.asked") return;
  seen.asked = { permission: properties.permission, patterns: properties.patterns, diff: properties.metadata.diff };
  const permission = { id: properties.sessionID, permissionID: properties.id };
  const answer = client.postSessionIdPermissionsPermissionId({ path: permission, body: { response: "once" } });
  seen.answered = await data(answer);
});
const text = (text) => ({ parts: [{ type: "text", text }] });
const answer = await data(client.session.prompt({ path, body: text("Play the piece.") }));
seen.events = await following;
seen.answer = { ...brief(answer), finish: answer.info.finish, model: answer.info.modelID };
const messages = await data(client.session.messages({ path }));
seen.messages = messages.map(brief);
const [first] = messages;
seen.first = brief(await data(client.session.message({ path: { id, messageID: first.info.id } })));
seen.todos = (await data(client.session.todo({ path }))).map(({ content, status }) => `${content}: ${status}`);
const diff = { path, query: { messageID: first.info.id } };
seen.diff = (await data(client.session.diff(diff))).map(({ file, additions, deletions }) => ({
  file,
  additions,
  deletions,
}));
seen.cost = (await data(client.session.get({ path }))).cost > 0;

// What it has of the directory.
seen.found = await data(client.find.files({ query: { query: "play" } }));
seen.lines = (await data(client.find.text({ query: { pattern: "second" } }))).map((line) => ({
  path: line.path.text,
  line: line.line_number,
}));
seen.listed = (await data(client.file.list({ query: { path: "." } }))).map(({ name, type }) => `${name}: ${type}`);
seen.content = (await data(client.file.read({ query: { path: "play.txt" } }))).content;

// A turn that never ends by itself.
const child = await data(client.session.create({ body: { parentID: id, title: "Below" } }));
const below = { id: child.id };
const again = await open(await client.event.subscribe());
const model = { providerID: "local", modelID: "stalls" };
await client.session.promptAsync({ path: below, body: { ...text("Go on."), model } });
await follow(again, ({ type, properties }) => type === "message.part.delta" && properties.delta.includes("upon"));
seen.busy = (await data(client.session.status()))[child.id];
seen.aborted = await data(client.session.abort({ path: below }));
seen.ended = (await data(client.session.messages({ path: below }))).map(brief);
seen.idle = await data(client.session.status());
seen.children = (await data(client.session.children({ path }))).map(({ title }) => title);

seen.renamed = (await data(client.session.update({ path: below, body: { title: "Another" } }))).title;
seen.titles = (await data(client.session.list())).map(({ title }) => title);
seen.deleted = await data(client.session.delete({ path: below }));
const lenient = createOpencodeClient({ baseUrl: server, directory });
seen.gone = refusal(await lenient.session.get({ path: below }));
seen.unbuilt = refusal(await lenient.session.share({ path }));
seen.left = (await data(client.session.list())).map(({ title }) => title);

// A command of a person, and the same conversation once more, up to that.
const shell = { agent: "build", command: "echo shell-$((6*7))" };
const command = await data(client.session.shell({ path, body: shell }));
seen.shell = command.parts.filter(({ type }) => type === "tool").map(({ state }) => state.output);
const messageID = command.info.parentID;
const fork = await data(client.session.fork({ path, body: { messageID } }));
seen.forked = (await data(client.session.messages({ path: { id: fork.id } }))).map(brief);
seen.changed = (await data(client.file.status())).map(({ path, status }) => `${path}: ${status}`);

report(seen);
