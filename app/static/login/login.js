// Signing in: one request, its refusal in words, and on to the page that was asked for.

const form = document.querySelector("#sign-in");
const problem = document.querySelector("#problem");
const submit = form.querySelector("button");

for (const person of JSON.parse(document.querySelector("#people").textContent)) {
  document.querySelector("#demo").hidden = false;
  const choose = document.createElement("button");
  const name = document.createElement("small");
  choose.type = "button";
  choose.textContent = person.display_name;
  name.textContent = person.name;
  choose.append(name);
  choose.addEventListener("click", () => {
    form.elements.name.value = person.name;
    form.elements.password.value = person.password;
    submit.focus();
  });
  document.querySelector("#offered").append(choose);
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  problem.textContent = "";
  submit.disabled = true;
  submit.textContent = "Signing in …";
  const refusal = await signIn(form.elements.name.value, form.elements.password.value);
  if (refusal === null) {
    // The fragment is the page that was asked for before the guard sent us here.
    location.replace(`/${location.hash}`);
    return;
  }
  problem.textContent = refusal;
  submit.disabled = false;
  submit.textContent = "Sign in";
  form.elements.password.select();
});

async function signIn(name, password) {
  let response;
  try {
    response = await fetch("/api/session", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ name, password }),
    });
  } catch {
    return "The server cannot be reached.";
  }
  const answer = await response.json();
  if (response.ok) return null;
  const { error } = answer;
  if (error.code === "wrong_credentials") return "Name and password do not match an account.";
  if (error.code === "too_many_attempts") return `Too many attempts. Try again ${inWords(error.details.retry_after_s)}.`;
  return error.message;
}

function inWords(seconds) {
  if (!(seconds > 0)) return "later";
  return seconds < 90 ? `in ${Math.ceil(seconds)} seconds` : `in ${Math.ceil(seconds / 60)} minutes`;
}

// A page that Back brings up again after signing in is asked anew; the guard lets a signed-in person through.
addEventListener("pageshow", (event) => {
  if (event.persisted) form.reset();
});
