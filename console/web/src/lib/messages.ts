/** What the hub says about definitions, runs and sources, in the language of the page. Pure. */
import type { Key } from './i18n.svelte';

export interface MessageText {
  key: Key;
  values: Record<string, string>;
}

/** The sentences of the hub. A sentence that is not listed is shown as it came. */
const sentences: [RegExp, Key][] = [
  [/^wrong arguments: "(?<name>[^"]+)" is a required property; expected (?<signature>.+)$/s, 'msg.arg.missing'],
  [/^wrong arguments: (?<name>[^\s:]+): (?<value>.+) is not of types? (?<type>.+?)(?: \(.*\))?; expected (?<signature>.+)$/s, 'msg.arg.type'],
  [/^wrong arguments: (?<name>[^\s:]+): (?<value>.+) is not one of (?<choices>.+?)(?: \(.*\))?; expected (?<signature>.+)$/s, 'msg.arg.choice'],
  [/^wrong arguments: (?<reason>.+)$/s, 'msg.arg.wrong'],
  [/^(?<name>\S+) is not a (?<type>[A-Z]+)$/, 'msg.arg.bind'],
  [/^the parameter :(?<name>\S+) is used and not declared$/, 'msg.undeclared'],
  [/^the parameter (?<name>\S+) is declared and not used$/, 'msg.unused'],
  [/^there are two parameters named (?<name>\S+)$/, 'msg.twice'],
  [/^"(?<name>.*)" is no name of a parameter; .*$/s, 'msg.param.name'],
  [/^(?<type>\S+) cannot be a parameter of a statement; use (?<types>.+)$/, 'msg.param.type'],
  [/^the default of (?<name>\S+) is not a (?<type>\S+)$/, 'msg.default.type'],
  [/^the default of (?<name>\S+) is not in its enum$/, 'msg.default.choice'],
  [/^an enum is a list of 1 to (?<most>\d+) values of its type$/, 'msg.choices'],
  [/^a tool has at most (?<most>\d+) parameters$/, 'msg.params.many'],
  [/^a description has at most (?<most>\d+) characters and no control characters$/, 'msg.description.long'],
  [/^say what the tool is for, so that a model knows when to call it$/, 'msg.description.missing'],
  [/^there is nothing to run$/, 'msg.empty'],
  [/^a name begins with a letter and has at most 64 .*$/, 'b.name.bad'],
  [/^the name (?<name>\S+) is reserved$/, 'msg.reserved'],
  [/^a tool keeps its name; .*$/, 'b.name.fixed'],
  [/^a tool named "(?<name>.+)" exists already; .*$/, 'b.name.taken'],
  [/^there is no custom tool named "(?<name>.*)"$/, 'msg.tool.none'],
  [/^the tool "(?<name>.+)" has no draft$/, 'msg.draft.none'],
  [/^the tool "(?<name>.+)" has no version (?<version>\d+)$/, 'msg.version.none'],
  [/^there are (?<most>\d+) custom tools already, as many as may be$/, 'msg.tools.many'],
  [/^the change was not saved$/, 'msg.store'],
  [/^the store is down; try again later$/, 'msg.store.down'],
  [/^there is no source; .*$/, 'msg.source.nothing'],
  [/^there is no source "(?<name>.*)"; known are (?<known>.+)$/, 'msg.source.none'],
  [/^\{\{(?<name>.+?)\}\} is not filled in: .*$/, 'lint.template'],
  [/^the query took too long and was stopped$/, 'msg.timeout'],
  [/^the database cannot be reached$/, 'msg.unreachable'],
  [/^cannot open the database$/, 'msg.open'],
  [/^the database says: (?<reason>.+)$/s, 'msg.database'],
  [/^the statement is refused: (?<reason>.+)$/s, 'msg.refused'],
  [/^the parameter :(?<name>\S+) has no value$/, 'msg.value.none'],
  [/^NameError: name '(?<name>[^']+)' is not defined.*$/s, 'lint.unknown'],
  [/^SyntaxError: (?<reason>.+)$/s, 'msg.syntax'],
  [/^ZeroDivisionError: .*$/s, 'msg.zero'],
  [/^LimitError: (?<reason>.+)$/s, 'msg.limit'],
  [/^(?<kind>[A-Z]\w*Error): (?<reason>.+)$/s, 'msg.python'],
  [/^a source named "(?<name>.+)" exists already$/, 'msg.source.taken'],
  [/^there is no source named "(?<name>.*)"$/, 'msg.source.gone'],
  [/^the source "(?<name>.+)" is not changed here; .*$/, 'msg.source.file'],
  [/^there is no such file$/, 'msg.file.none'],
  [/^the hub's own files are no source$/, 'msg.file.own'],
  [/^files are added in maru\.yaml .*$/, 'msg.file.remote'],
  [/^type the password: .*$/, 'msg.masked'],
  [/^the hub does not answer$/, 'msg.silent'],
  [/^the (?:address|host) ".*" is refused: (?<host>\S+) is not a listed host; .*$/s, 'msg.host.unlisted'],
  [/^the (?:address|host) ".*" is refused: (?<host>\S+) is a private (?:address|name); .*$/s, 'msg.host.private'],
  [/^the host "(?<host>.+)" is refused: (?<reason>.+)$/s, 'msg.host'],
  [/^the program ended with exit code (?<code>\d+)(?:: (?<reason>.+?))?(?: \((?<hint>(?:install|start|there is no npm) [^()]*(?:\([^()]*\)[^()]*)?)\))?$/s, 'msg.exit'],
  [/^the program was ended by (?<code>[^:]+)(?:: (?<reason>.+))?$/s, 'msg.killed'],
  [/^install (?<program>[^(,]+?)(?: \(.*\))?, or name the full path of the program$/, 'msg.hint.install'],
  [/^start Docker, or add this user to the group docker$/, 'msg.hint.docker'],
  [/^there is no npm package of this name; .*$/, 'msg.hint.npm'],
  [/^cannot connect to (?<host>[^\s:]+(?::\d+)?): (?<reason>.+)$/s, 'msg.connect'],
  [/^its name is not known$/, 'msg.connect.name'],
  [/^connection refused.*$/i, 'msg.connect.refused'],
  [/^a server named (?<name>\S+) is registered already$/, 'msg.server.taken'],
  [/^no server is named "(?<name>.*)"$/, 'msg.server.none'],
  [/^there are (?<most>\d+) servers, as many as .*$/, 'msg.servers.many'],
  [/^no tool of that name waits to be accepted$/, 'msg.accept.none'],
  [/^unknown (?<what>\w+): (?<name>[^;]+); did you mean (?<near>.+?)\?(?:.*)$/s, 'msg.unknown.near'],
  [/^unknown (?:tool|server|user|caller): (?<name>[^;]+)$/, 'msg.unknown'],
  [/^no token has this name$/, 'msg.token.none'],
  [/^a token named (?<name>\S+) already exists; .*$/, 'msg.token.taken'],
  [/^a token name has 1 to 63 .*$/, 'msg.token.name'],
  [/^unknown token; .*$/, 'msg.token.unknown'],
  [/^the token has expired$/, 'msg.token.expired'],
  [/^this link was already used, .*$/, 'msg.link.used'],
  [/^send a code or a token$/, 'msg.token.missing'],
  [/^there is no such (?<what>run|budget|limit)$/, 'msg.gone'],
  [/^the server answered with status (?<status>\d+).*$/, 'msg.server.status'],
  [/^the server ended the session$/, 'msg.server.ended'],
  [/^(?<field>config\.\w+|name): (?<reason>.+)$/s, 'msg.field'],
  [/^a model named "(?<name>.+)" exists already$/, 'msg.model.taken'],
  [/^there is no model named "(?<name>.*)"$/, 'msg.model.gone'],
  [/^the model "(?<name>.+)" is not changed here; .*$/, 'msg.model.file'],
  [/^type the key: a placeholder was given$/, 'msg.key.placeholder'],
  [/^type the key again: the address changed$/, 'msg.key.address'],
  [/^the backend listed no models; .*$/, 'msg.models.unlisted'],
  [/^the backend of the model "(?<name>.+)" cannot be used(?:: (?<reason>.+))?$/s, 'msg.backend.unreachable'],
  [/^the backend of the model "(?<name>.+)" answered with HTTP (?<status>\d+)(?<code>.*)$/, 'msg.backend.status'],
  [/^the backend of the model "(?<name>.+)" (?:did not finish within|sent nothing for) (?<limit>[^;]+);.*$/, 'msg.backend.slow'],
];

/** The host that an admin may allow, where only that is in the way. */
export function refusedHost(sentence: string): string {
  return sentence.match(/(\S+) is not a listed host; allow it in the console/)?.[1] ?? '';
}

export function readMessage(sentence: string): MessageText | null {
  for (const [pattern, key] of sentences) {
    const found = sentence.match(pattern);
    if (found) return { key, values: { ...found.groups } };
  }
  return null;
}

/** The argument that a failed run complains of, if it names one. */
export function wrongArgument(sentence: string): string {
  const found = readMessage(sentence);
  return found && found.key.startsWith('msg.arg.') ? found.values.name ?? '' : '';
}
