// What the wizard asks for, and the flow file that comes of it. A text is written as JSON, which YAML takes.

/** @typedef {{name: string, label: string, hint?: string, kind?: "text" | "number" | "yes" | "secret", is?: string, pattern?: string, isOptional?: boolean}} Field */
/** @typedef {Record<string, {text: string, fields: Field[], lines: (given: Record<string, string>) => string[]}>} Kinds */

const DATABASE = {
  name: "database",
  label: "Name of the source",
  hint: "part of the names of its tables everywhere",
  pattern: "[a-z0-9][a-z0-9_\\-]*",
};
const TABLES = { name: "tables", label: "Tables", is: "*.*", hint: "schema.table, with * for any; commas between" };

/** @param {string | undefined} text */
const quoted = (text) => JSON.stringify(text ?? "");
/** @param {string | undefined} text */
const list = (text) =>
  JSON.stringify(
    (text ?? "")
      .split(",")
      .map((part) => part.trim())
      .filter(Boolean),
  );
/** @param {string | undefined} secret */
const reference = (secret) => `"\${${secret}}"`;

/** @type {Kinds} */
export const SOURCES = {
  mysql: {
    text: "MySQL or MariaDB server",
    fields: [
      DATABASE,
      { name: "host", label: "Host", hint: "best a standby" },
      { name: "port", label: "Port", kind: "number", is: "3306" },
      { name: "user", label: "User", hint: "with REPLICATION SLAVE, REPLICATION CLIENT and SELECT" },
      {
        name: "password",
        label: "Password",
        kind: "secret",
        hint: "a secret of the server; the flow file has its name only",
      },
      TABLES,
      { name: "load", label: "Load the tables as they are first, beside capture", kind: "yes", is: "yes" },
    ],
    lines: (given) => [
      "type: mysql",
      `name: ${quoted(given["database"])}`,
      `host: ${quoted(given["host"])}`,
      `port: ${Number(given["port"])}`,
      `user: ${quoted(given["user"])}`,
      `password: ${reference(given["password"])}`,
      `tables: ${list(given["tables"])}`,
      ...(given["load"] ? ["start: latest", "load: true"] : ["start: earliest"]),
    ],
  },
  binlog: {
    text: "Binlog files that were recorded",
    fields: [
      DATABASE,
      { name: "files", label: "Files", hint: "/var/backups/binlog.0*, on the server's machine" },
      TABLES,
    ],
    lines: (given) => [
      "type: mysql",
      `name: ${quoted(given["database"])}`,
      `files: ${quoted(given["files"])}`,
      `tables: ${list(given["tables"])}`,
    ],
  },
};

/** @type {Kinds} */
export const TARGETS = {
  lake: {
    text: "Lake: every change, any moment (Parquet)",
    fields: [
      {
        name: "path",
        label: "Place",
        is: "./lake",
        hint: "a directory beside the flow file or anywhere, hdfs://… or s3://…",
      },
      {
        name: "windows",
        label: "Windows",
        isOptional: true,
        hint: "1h, 1d …: closed with a certificate when all of it is there; none when empty",
        pattern: "\\d+[smhd]",
      },
    ],
    lines: (given) => [
      "type: lake",
      `path: ${quoted(given["path"])}`,
      ...(given["windows"] ? [`windows: ${given["windows"]}`] : []),
    ],
  },
  database: {
    text: "Database: the newest state of every row",
    fields: [
      {
        name: "url",
        label: "Address",
        is: "sqlite:///./mart.db",
        hint: "postgresql://me:${PASSWORD}@warehouse/mart, mysql://…, sqlite:///…; passwords as names of secrets",
      },
    ],
    lines: (given) => ["type: database", `url: ${quoted(given["url"])}`],
  },
  redis: {
    text: "Redis: a key per row",
    fields: [{ name: "redis", label: "Address", is: "redis://localhost:6379/0" }],
    lines: (given) => ["type: redis", `url: ${quoted(given["redis"])}`],
  },
};

/**
 * @param {Record<string, string>} given
 * @returns {string}
 */
export function flowFile(given) {
  const source = SOURCES[given["source"] ?? ""]?.lines(given) ?? [];
  const target = TARGETS[given["target"] ?? ""]?.lines(given) ?? [];
  return [
    "source:",
    ...source.map((line) => `  ${line}`),
    "log: {type: directory, path: ./log}",
    "state: ./state",
    "flows:",
    `  - name: ${given["target"]}`,
    `    from: ${quoted(`mysql.${given["database"]}.*`)}`,
    "    to:",
    ...target.map((line) => `      ${line}`),
    "",
  ].join("\n");
}
