// While there is no model: says what the server is doing, and loads the page again once there is one.

const reason = document.getElementById("reason");

async function look() {
  try {
    const response = await fetch("ready");
    if (response.ok) { location.reload(); return; }
    const { detail } = await response.json();
    if (detail && reason.textContent !== detail) reason.textContent = detail;
  } catch {
    reason.textContent = "The server does not answer.";
  }
  setTimeout(look, 500);
}
look();
