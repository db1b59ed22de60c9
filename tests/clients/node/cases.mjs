// Runs a script's cases, one by one, and names those that went well.

export const url = process.env.MLXNB_URL
export const key = process.env.MLXNB_KEY

export async function run(cases) {
  for (const one of cases) {
    await one()
    console.log(one.name)
  }
}
