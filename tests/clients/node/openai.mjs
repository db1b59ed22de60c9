// The core cases with OpenAI's client for JavaScript.

import assert from 'node:assert/strict'
import OpenAI from 'openai'
import { key, run, url } from './cases.mjs'

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0, timeout: 100_000 })
const look = {
  type: 'function',
  name: 'look',
  parameters: { type: 'object', properties: { at: { type: 'string' } } },
  strict: false,
}
const lookInChat = { type: 'function', function: { name: look.name, parameters: look.parameters } }
const schema = {
  type: 'object',
  properties: { answer: { type: 'string' }, sure: { type: 'boolean' } },
  required: ['answer', 'sure'],
  additionalProperties: false,
}
const hi = [{ role: 'user', content: 'Hi' }]

async function test_text_and_stream() {
  const plain = await client.responses.create({ model: 'talker', input: 'Hi' })
  assert.equal(plain.output_text, 'Hello there, friend.')
  const stream = client.responses.stream({ model: 'talker', input: 'Hi' })
  let told = ''
  for await (const event of stream) {
    if (event.type === 'response.output_text.delta') told += event.delta
  }
  assert.equal(told, plain.output_text)
  assert.equal((await stream.finalResponse()).output_text, told)
}

async function test_tools_in_two_rounds() {
  const stream = client.responses.stream({ model: 'fan', input: 'Hi', tools: [look] })
  const first = await stream.finalResponse()
  const outputs = first.output.map((call) => {
    assert.equal(call.type, 'function_call')
    return { type: 'function_call_output', call_id: call.call_id, output: 'blue' }
  })
  assert.equal(outputs.length, 2)
  const second = await client.responses.create({
    model: 'fan', input: outputs, tools: [look], previous_response_id: first.id,
  })
  assert.equal(second.output_text, 'Both are blue.')
}

async function test_reasoning() {
  const made = await client.responses.create({
    model: 'thinker', input: 'Hm?', reasoning: { effort: 'medium', summary: 'auto' },
  })
  assert.deepEqual(made.output.map((item) => item.type), ['reasoning', 'message'])
  assert.equal(made.output_text, 'Forty-two.')
}

async function test_form() {
  const made = await client.responses.parse({
    model: 'schemer',
    input: 'Well?',
    text: { format: { type: 'json_schema', name: 'verdict', schema, strict: true } },
  })
  assert.deepEqual(JSON.parse(made.output_text), { answer: 'yes', sure: true })
}

async function test_stored_responses() {
  const first = await client.responses.create({ model: 'talker', input: 'Hi' })
  const { data: second, response } = await client.responses
    .create({ model: 'talker', input: 'And?', previous_response_id: first.id })
    .withResponse()
  assert.equal(response.headers.get('x-session-cache'), 'hit')
  assert.equal(second.output_text, 'Again, hello.')
  assert.equal((await client.responses.retrieve(first.id)).output_text, first.output_text)
  const items = await client.responses.inputItems.list(first.id)
  assert.equal(items.data[0].content[0].text, 'Hi')
  await client.responses.delete(first.id)
  await assert.rejects(client.responses.retrieve(first.id), OpenAI.NotFoundError)
}

async function test_counts_and_models() {
  const counted = await client.responses.inputTokens.count({ model: 'talker', input: 'Hi' })
  const made = await client.responses.create({ model: 'talker', input: 'Hi' })
  assert.equal(counted.input_tokens, made.usage.input_tokens)
  const names = []
  for await (const model of client.models.list()) names.push(model.id)
  assert.ok(names.includes('talker'))
}

async function test_chat_completions() {
  const stream = client.chat.completions.stream({ model: 'talker', messages: hi })
  let told = ''
  stream.on('content', (delta) => { told += delta })
  assert.equal(await stream.finalContent(), 'Hello there, friend.')
  assert.equal(told, 'Hello there, friend.')
  const first = await client.chat.completions.create({
    model: 'fan', messages: hi, tools: [lookInChat],
  })
  const { message } = first.choices[0]
  const results = message.tool_calls.map((call) => (
    { role: 'tool', tool_call_id: call.id, content: 'blue' }
  ))
  const second = await client.chat.completions.create({
    model: 'fan', messages: [...hi, message, ...results], tools: [lookInChat],
  })
  assert.equal(second.choices[0].message.content, 'Both are blue.')
  const cut = await client.chat.completions.create({
    model: 'stopper', messages: hi, stop: ['STOP'],
  })
  assert.equal(cut.choices[0].message.content, 'one two ')
}

async function test_errors() {
  await assert.rejects(
    client.responses.create({ model: 'nobody', input: 'Hi' }), OpenAI.NotFoundError)
  await assert.rejects(
    client.responses.create({ model: 'talker', input: 'Hi', max_output_tokens: 0 }),
    OpenAI.BadRequestError)
  const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'mlxnb_wrong', maxRetries: 0 })
  await assert.rejects(
    stranger.responses.create({ model: 'talker', input: 'Hi' }), OpenAI.AuthenticationError)
}

async function test_leaving() {
  const stream = await client.responses.create({ model: 'long', input: 'Go on', stream: true })
  for await (const event of stream) {
    if (event.type === 'response.output_text.delta') break
  }
  stream.controller.abort()
}

await run([
  test_text_and_stream,
  test_tools_in_two_rounds,
  test_reasoning,
  test_form,
  test_stored_responses,
  test_counts_and_models,
  test_chat_completions,
  test_errors,
  test_leaving,
])
