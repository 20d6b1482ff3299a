// Shows /openapi.json. Everything is put in as text: nothing of the document is markup.
"use strict";

const element = (name, text, ...children) => {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
};

const typeOf = (schema) => {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.oneOf) return schema.oneOf.map(typeOf).join(" or ");
  if (schema.type === "array") return `list of ${typeOf(schema.items) || "anything"}`;
  return [schema.type || "anything"].flat().join(" or ");
};

const contentOf = (part) =>
  Object.entries((part && part.content) || {}).map(([media, { schema }]) => typeOf(schema) || media).join(", ");

const operation = (path, method, op) => {
  const details = element("details");
  details.append(element("summary", "", element("code", `${method.toUpperCase()} ${path}`), ` ${op.summary}`));
  const list = element("ul");
  for (const parameter of op.parameters) {
    list.append(element("li", `${parameter.in}: ${parameter.name} (${typeOf(parameter.schema)})`));
  }
  if (op.requestBody) list.append(element("li", `body: ${contentOf(op.requestBody)}`));
  list.append(element("li", `answer: ${contentOf(op.responses["200"]) || "nothing"}`));
  list.append(element("li", op.security ? `login: ${op["x-policy"]}` : "no login"));
  details.append(list);
  return details;
};

const schemaTable = (name, schema) => {
  const table = element("table");
  for (const [member, type] of Object.entries(schema.properties || {})) {
    table.append(element("tr", "", element("td", member), element("td", typeOf(type))));
  }
  return element("details", "", element("summary", name), table);
};

const show = (api) => {
  const target = document.getElementById("reference");
  target.replaceChildren();
  const groups = new Map();
  for (const [path, operations] of Object.entries(api.paths)) {
    for (const [method, op] of Object.entries(operations)) {
      const tag = op.tags[0];
      groups.set(tag, [...(groups.get(tag) || []), operation(path, method, op)]);
    }
  }
  for (const [tag, operations] of groups) target.append(element("h2", tag), ...operations);
  target.append(element("h2", "objects"));
  for (const [name, schema] of Object.entries(api.components.schemas)) target.append(schemaTable(name, schema));
};

fetch("/openapi.json")
  .then((answer) => (answer.ok ? answer.json() : Promise.reject(new Error(`status ${answer.status}`))))
  .then(show)
  .catch((error) => {
    document.getElementById("reference").textContent = `The document cannot be read: ${error.message}`;
  });
