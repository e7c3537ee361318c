import { client } from './client/client.gen.js';
import { createSpace, getModel, getNeighbors, putSupport } from './client/index.js';

client.setConfig({ baseUrl: process.argv[2] });
const space = 'from-typescript';
await createSpace({ body: { name: space, num_parameters: 100 }, throwOnError: true });
for (const [model, indices] of [['org/a', [1, 2, 3, 4]], ['org/b', [3, 4, 5, 6]]] as const) {
  await putSupport({ path: { space, model }, body: { indices: [...indices] }, throwOnError: true });
}
const near = await getNeighbors({ path: { space }, query: { model: 'org/a' }, throwOnError: true });
const missing = await getModel({ path: { space, model: 'org/missing' } });
console.log(JSON.stringify({
  neighbors: near.data.items.map(({ model, similarity }) => [model, similarity]),
  code: missing.error?.code,
}));
