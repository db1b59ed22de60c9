// The core cases with Anthropic's client for JavaScript.

import assert from 'node:assert/strict'
import Anthropic from '@anthropic-ai/sdk'
import { key, run, url } from './cases.mjs'

const client = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0, timeout: 100_000 })
const look = {
  name: 'look',
  input_schema: { type: 'object', properties: { at: { type: 'string' } } },
}
const schema = {
  type: 'object',
  properties: { answer: { type: 'string' }, sure: { type: 'boolean' } },
  required: ['answer', 'sure'],
  additionalProperties: false,
}
const hi = [{ role: 'user', content: 'Hi' }]
const ask = (model, more = {}) => ({ model, messages: hi, max_tokens: 100, ...more })

async function test_text_and_stream() {
  const plain = await client.messages.create(ask('talker'))
  assert.equal(plain.content[0].text, 'Hello there, friend.')
  const stream = client.messages.stream(ask('talker'))
  let told = ''
  stream.on('text', (delta) => { told += delta })
  assert.equal(await stream.finalText(), 'Hello there, friend.')
  assert.equal(told, 'Hello there, friend.')
}

async function test_tools_in_two_rounds() {
  const first = await client.messages.stream(ask('fan', { tools: [look] })).finalMessage()
  assert.equal(first.stop_reason, 'tool_use')
  assert.deepEqual(first.content.map((block) => block.input), [{ at: 'sky' }, { at: 'sea' }])
  const results = first.content.map((call) => (
    { type: 'tool_result', tool_use_id: call.id, content: 'blue' }
  ))
  const messages = [
    ...hi, { role: 'assistant', content: first.content }, { role: 'user', content: results },
  ]
  const second = await client.messages.create(ask('fan', { messages, tools: [look] }))
  assert.equal(second.content[0].text, 'Both are blue.')
  assert.ok(second.usage.cache_read_input_tokens > 0)
}

async function test_thinking() {
  const thinking = { type: 'enabled', budget_tokens: 50 }
  const made = await client.messages.stream(ask('thinker', { thinking })).finalMessage()
  assert.equal(made.content[0].thinking.trim(), 'I wonder.')
  assert.equal(made.content[1].text, 'Forty-two.')
}

async function test_form() {
  const made = await client.messages.create(
    ask('schemer', { output_config: { format: { type: 'json_schema', schema } } }))
  assert.deepEqual(JSON.parse(made.content[0].text), { answer: 'yes', sure: true })
}

async function test_stop_sequence() {
  const made = await client.messages.create(ask('stopper', { stop_sequences: ['STOP'] }))
  assert.equal(made.stop_reason, 'stop_sequence')
  assert.equal(made.stop_sequence, 'STOP')
}

async function test_counts_and_models() {
  const counted = await client.messages.countTokens({ model: 'talker', messages: hi })
  const { usage } = await client.messages.create(ask('talker'))
  assert.equal(counted.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)
  const names = []
  for await (const model of client.models.list()) names.push(model.id)
  assert.ok(names.includes('talker'))
}

async function test_errors() {
  await assert.rejects(client.messages.create(ask('nobody')), Anthropic.NotFoundError)
  await assert.rejects(
    client.messages.create(ask('talker', { max_tokens: 0 })), Anthropic.BadRequestError)
  const stranger = new Anthropic({ baseURL: url, apiKey: 'mlxnb_wrong', maxRetries: 0 })
  await assert.rejects(stranger.messages.create(ask('talker')), Anthropic.AuthenticationError)
}

async function test_leaving() {
  const stream = client.messages.stream(ask('long', { max_tokens: 4000 }))
  for await (const event of stream) {
    if (event.type === 'content_block_delta') break
  }
  stream.abort()
}

await run([
  test_text_and_stream,
  test_tools_in_two_rounds,
  test_thinking,
  test_form,
  test_stop_sequence,
  test_counts_and_models,
  test_errors,
  test_leaving,
])
