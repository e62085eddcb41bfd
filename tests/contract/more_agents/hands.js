// What every agent can do in its folder, and where the service is.

import { execSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { z } from "zod";

export const { ADDRESS, API_KEY, MODEL, PROMPT, INTERFACE, SHOP } = process.env;
export const BASE_URL = `${ADDRESS}/v1`;

export const HANDS = {
  read_file: {
    description: "Read a file.",
    parameters: z.object({ path: z.string() }),
    run: ({ path }) => readFileSync(path, "utf8"),
  },
  write_file: {
    description: "Write a text into a file.",
    parameters: z.object({ path: z.string(), text: z.string() }),
    run: ({ path, text }) => {
      writeFileSync(path, text);
      return "Written.";
    },
  },
  run_command: {
    description: "Run a command.",
    parameters: z.object({ command: z.string() }),
    run: ({ command }) => execSync(command, { encoding: "utf8" }),
  },
};
