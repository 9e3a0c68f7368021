// What the scripts of this folder have in common: they are told a server and a directory, and print what they saw as
// one line of JSON. The tests that start them judge it.

export const [, , server, directory] = process.argv;

/** Ends the script with what it saw. Streams of events that are still open do not keep it. */
export function report(seen) {
  process.stdout.write(`${JSON.stringify(seen)}\n`, () => process.exit(0));
}

/** A message without ids and times: who said it, and its parts. */
export function brief({ info, parts }) {
  return { role: info.role, error: info.error?.name, parts: parts.map(said) };
}

function said(part) {
  if (part.type === "tool") return `${part.tool}: ${part.state.status}`;
  return part.text === undefined ? part.type : `${part.type}: ${part.text}`;
}

/** What an answer of an SDK says of itself where it is no success. */
export function refusal({ response, error }) {
  return { status: response.status, name: error?.name };
}

/** The same events, once they come: an SDK connects when the first is read. */
export async function open({ stream }) {
  const { value } = await stream.next();
  return (async function* () {
    yield value;
    yield* stream;
  })();
}

/**
 * Follows events until `isOver` says so of one. `answer` is given each of them, and what it gives is waited for. Gives
 * the types that came, in the order in which each came first, and the texts that streamed, by part.
 */
export async function follow(stream, isOver, answer = () => {}) {
  const types = new Set();
  const streamed = {};
  for await (const event of stream) {
    types.add(event.type);
    const { partID, delta } = event.properties;
    if (event.type === "message.part.delta") streamed[partID] = (streamed[partID] ?? "") + delta;
    await answer(event);
    if (isOver(event)) break;
  }
  return { types: [...types], texts: Object.values(streamed) };
}
