"use strict";
// The documentation: openapi.json, for people. Nothing of it is read as HTML.
function allowed() { /* nothing here needs a token */ }
function askedFor(path, method, operation) {
  const parts = ["curl"];
  if (method !== "get") parts.push("-X", method.toUpperCase());
  if (path.includes("/events")) parts.push("-N");
  if (operation.security === undefined || operation.security.length) parts.push('-H "Authorization: Bearer $TOKEN"');
  if (operation.requestBody) parts.push("-H 'Content-Type: application/sdp' --data-binary @stream.sdp");
  parts.push(location.origin + path.replace("{id}", "cam1"));
  return parts.join(" ");
}
async function write() {
  const api = await (await fetch("/api/v1/openapi.json")).json();
  text("title", api.info.title);
  text("version", "version " + api.info.version);
  text("description", api.info.description);
  for (const tag of api.tags) {
    const section = make("section", { class: "card" }, make("h2", {}, tag.name, make("span", {}, tag.description)));
    for (const [path, item] of Object.entries(api.paths)) {
      for (const method of ["get", "put", "delete", "post"]) {
        const operation = item[method];
        if (!operation || !operation.tags.includes(tag.name)) continue;
        const scope = operation["x-scope"] || "none";
        const route = make("article", { class: "route" },
          make("h3", {}, make("b", { class: "method " + method }, method.toUpperCase()), make("code", {}, path),
            make("span", {}, scope === "none" ? "needs no token" : "scope " + scope)),
          make("p", {}, operation.summary + (operation.description ? ". " + operation.description : "")));
        const parameters = [...(item.parameters || []), ...(operation.parameters || [])].map((p) => p.$ref ? api.components.parameters[p.$ref.split("/").pop()] : p);
        for (const parameter of parameters) route.append(make("p", {}, make("code", {}, parameter.name), " (" + parameter.in + "): " + parameter.description));
        const codes = make("p", { class: "codes" });
        for (const [code, response] of Object.entries(operation.responses)) {
          const said = response.$ref ? api.components.responses[response.$ref.split("/").pop()] : response;
          codes.append(make("span", {}, make("b", {}, code), " " + said.description));
        }
        route.append(codes);
        if (tag.name !== "pages") route.append(make("pre", {}, askedFor(path, method, operation)));
        section.append(route);
      }
    }
    $("groups").append(section);
  }
  text("about", "gdmedia " + api.info.version);
}
write().catch((error) => text("description", error.message));
whoAmI().catch(() => {});
