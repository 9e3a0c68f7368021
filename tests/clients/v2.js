// The second client of @opencode-ai/sdk, which knows questions and the list of what is asked.

import { createOpencodeClient } from "@opencode-ai/sdk/v2";
import { brief, directory, follow, open, refusal, report, server } from "./report.js";

const client = createOpencodeClient({ baseUrl: server, directory, throwOnError: true });
const data = async (request) => (await request).data;
const seen = {};

seen.healthy = (await data(client.global.health())).healthy;
seen.directory = (await data(client.path.get())).directory;

// Everything of the engine comes here, each event in an envelope that says where it happened.
const events = await open(await client.global.event());
const rules = [{ permission: "edit", pattern: "*", action: "ask" }];
const session = await data(client.session.create({ title: "By the newer SDK", permission: rules }));
const sessionID = session.id;
seen.rules = session.permission;
const places = new Set();
async function* unwrapped() {
  for await (const { directory, payload } of events) {
    if (payload.properties.sessionID === sessionID) places.add(directory);
    yield payload;
  }
}
const over = (event) => event.type === "session.idle" && event.properties.sessionID === sessionID;
const answers = [{ reply: "reject", message: "Not this one." }, { reply: "always" }];
const following = follow(unwrapped(), over, async ({ type, properties }) => {
  const requestID = properties.id;
  if (type === "permission.asked") {
    const listed = (await data(client.permission.list())).map(({ permission, id }) => [permission, id === requestID]);
    seen.permissions = [...(seen.permissions ?? []), listed];
    await client.permission.reply({ requestID, ...answers.shift() });
  }
  if (type === "question.asked") {
    const [question] = await data(client.question.list());
    seen.questions = [...(seen.questions ?? []), question.questions.map(({ question }) => question)];
    if (seen.questions.length === 1) await client.question.reply({ requestID, answers: [["Sad"]] });
    else await client.question.reject({ requestID });
  }
});
const parts = [{ type: "text", text: "Play the piece." }];
await client.session.promptAsync({ sessionID, parts });
seen.busy = (await data(client.session.status()))[sessionID];
seen.events = await following;
seen.places = [...places];
seen.messages = (await data(client.session.messages({ sessionID }))).map(brief);

// The newest first, page by page.
const page = await client.session.messages({ sessionID, limit: 2 });
const before = page.response.headers.get("x-next-cursor");
const earlier = await data(client.session.messages({ sessionID, limit: 2, before }));
seen.pages = [page.data.length, earlier.length, earlier.at(-1).info.id < page.data[0].info.id];

// What a prompt carries beside its text.
const picture = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mOoBwAAgQCAfhwpxwAAAABJRU5ErkJggg==";
const withFile = [...parts, { type: "file", mime: "image/png", filename: "mask.png", url: picture }];
seen.withFile = brief(await data(client.session.prompt({ sessionID, parts: withFile })));
const files = (await data(client.session.messages({ sessionID }))).flatMap(({ parts }) => parts);
seen.files = files.filter(({ type }) => type === "file").map(({ filename }) => filename);

// What is only told, what is said to the model beside it, and tools that it does not get.
const remark = [{ type: "text", text: "The hall is full." }];
seen.remark = brief(await data(client.session.prompt({ sessionID, noReply: true, parts: remark })));
const system = "Speak in verse.";
seen.verse = brief(await data(client.session.prompt({ sessionID, system, tools: { bash: false }, parts })));
const metadata = { stage: 2 };
seen.metadata = (await data(client.session.create({ title: "With more", metadata }))).metadata;
const archived = { sessionID, time: { archived: 1800000000000 } };
seen.archived = (await data(client.session.update(archived))).time.archived;

const changes = async (request) => (await data(request)).map(({ file, status }) => `${file}: ${status}`);
seen.vcs = await data(client.vcs.get());
seen.changed = await changes(client.vcs.status());
seen.compared = await changes(client.vcs.diff({ mode: "git" }));
seen.servers = { lsp: await data(client.lsp.status()), mcp: await data(client.mcp.status()) };
seen.roots = (await data(client.session.list({ roots: true, search: "newer" }))).length;

const lenient = createOpencodeClient({ baseUrl: server, directory });
seen.unknown = refusal(await lenient.permission.reply({ requestID: "per_0123456789abNoSuchRequest", reply: "once" }));
seen.outside = refusal(await createOpencodeClient({ baseUrl: server, directory: "/etc" }).path.get());

report(seen);
