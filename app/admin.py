"""The administration page: Gradio's own widgets, each handler a call to the API as the person who clicked."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr

from app.client import ApiClient, ApiProblem
from app.components import done, entrance, part, problem, table
from backend.domain.access import Permission, Role

ROLES = [role.value for role in Role]
# The page's own events: no queue, nothing for the API's clients, no veil over the page while they run.
EVENT = {"queue": False, "api_visibility": "private", "show_progress": "hidden"}

Update = Any


@dataclass(frozen=True, slots=True)
class _Users:
    tab: Any
    list: Any
    chosen: Any


@dataclass(frozen=True, slots=True)
class _Projects:
    tab: Any
    list: Any
    chosen: Any
    member: Any


@dataclass(frozen=True, slots=True)
class _System:
    tab: Any
    list: Any


def build_admin(client: ApiClient) -> None:
    """Lay the page out inside the `Blocks` that is being built."""
    with gr.Column(elem_id="sp-admin"):
        entered = entrance("admin", elem_id="sp-admin-entrance")
        gr.HTML('<div class="sp-root"><h1>Administration</h1></div>', apply_default_css=False, elem_id="sp-admin-title")
        notice = part("notice", elem_id="sp-admin-notice")
        with gr.Tabs() as tabs:
            with gr.Tab("Users", id="users", visible=False) as users_tab:
                users_list = part("table", elem_id="sp-users")
                chosen_user, new_user, save_user, reset = _user_forms()
            with gr.Tab("Projects", id="projects", visible=False) as projects_tab:
                projects_list = part("table", elem_id="sp-projects")
                chosen_project, member, new_project, membership = _project_forms()
            with gr.Tab("System", id="system", visible=False) as system_tab:
                system_list = part("table", elem_id="sp-system")
                check = gr.Button("Check again", size="sm", elem_id="sp-check-system")
    users = _Users(users_tab, users_list, chosen_user[0])
    projects = _Projects(projects_tab, projects_list, chosen_project, member)
    system = _System(system_tab, system_list)
    page = _AdminPage(client, notice, tabs, users, projects, system)
    entered.entered(page.show, None, page.outputs, **EVENT)
    check.click(page.show, None, page.outputs, **EVENT)
    page.on_click(new_user.button, new_user.fields, page.create_user, cleared=new_user.fields)
    page.on_click(save_user, chosen_user, page.change_user)
    page.on_click(reset, [chosen_user[0]], page.reset_password)
    users.chosen.change(page.describe_user, users.chosen, chosen_user[1:], **EVENT)
    page.on_click(new_project.button, new_project.fields, page.create_project, cleared=new_project.fields)
    page.on_click(membership.add, [chosen_project, member], page.add_member)
    page.on_click(membership.remove, [chosen_project, member], page.remove_member)


@dataclass(frozen=True, slots=True)
class _Form:
    fields: list[Any]
    button: Any


@dataclass(frozen=True, slots=True)
class _Membership:
    add: Any
    remove: Any


def _heading(text: str) -> None:
    gr.HTML(f'<div class="sp-root"><h2>{text}</h2></div>', apply_default_css=False)


def _user_forms() -> tuple[list[Any], _Form, Any, Any]:
    with gr.Row():
        with gr.Column(variant="panel", elem_classes="sp-card"):
            _heading("New user")
            name = gr.Textbox(label="Name to sign in with", max_lines=1, elem_id="sp-new-user-name")
            display_name = gr.Textbox(label="Display name", max_lines=1, elem_id="sp-new-user-display")
            role = gr.Dropdown(ROLES, value=Role.CLINICIAN.value, label="Role", filterable=False)
            create = gr.Button("Create user", variant="primary", size="md", elem_id="sp-create-user")
        with gr.Column(variant="panel", elem_classes="sp-card"):
            _heading("Change a user")
            chosen = gr.Dropdown([], label="User", elem_id="sp-chosen-user")
            new_role = gr.Dropdown(ROLES, value=None, label="Role", filterable=False)
            is_active = gr.Checkbox(label="May sign in", value=True)
            save = gr.Button("Save", variant="primary", size="md", elem_id="sp-save-user")
            reset = gr.Button("Make a new password", size="md", elem_id="sp-reset-password")
    return [chosen, new_role, is_active], _Form([name, display_name, role], create), save, reset


def _project_forms() -> tuple[Any, Any, _Form, _Membership]:
    with gr.Row():
        with gr.Column(variant="panel", elem_classes="sp-card"):
            _heading("New project")
            name = gr.Textbox(label="Name", max_lines=1, elem_id="sp-new-project-name")
            create = gr.Button("Create project", variant="primary", size="md", elem_id="sp-create-project")
        with gr.Column(variant="panel", elem_classes="sp-card"):
            _heading("Members")
            chosen = gr.Dropdown([], label="Project", elem_id="sp-chosen-project")
            member = gr.Dropdown([], label="User", elem_id="sp-member")
            with gr.Row():
                add = gr.Button("Add", variant="primary", size="md", elem_id="sp-add-member")
                remove = gr.Button("Remove", size="md", elem_id="sp-remove-member")
    return chosen, member, _Form([name], create), _Membership(add, remove)


class _AdminPage:
    """What the buttons do. Each answers with a line that says what happened and the tables as they are now."""

    def __init__(
        self, client: ApiClient, notice: Any, tabs: Any, users: _Users, projects: _Projects, system: _System
    ) -> None:
        self._client = client
        self._notice, self._tabs = notice, tabs
        self._users, self._projects, self._system = users, projects, system

    @property
    def outputs(self) -> list[Any]:
        """Everything that an answer may change, in the order of `_everything`."""
        users, projects, system = self._users, self._projects, self._system
        return [
            self._notice,
            self._tabs,
            users.tab,
            users.list,
            users.chosen,
            projects.tab,
            projects.list,
            projects.chosen,
            projects.member,
            system.tab,
            system.list,
        ]

    def on_click(
        self,
        button: Any,
        inputs: list[Any],
        action: Callable[..., Awaitable[str]],
        *,
        cleared: list[Any] | None = None,
    ) -> None:
        """Do `action` with the inputs, say what it returns, show the tables anew and empty the `cleared` fields."""
        emptied = [field for field in cleared or [] if isinstance(field, gr.Textbox)]

        async def handle(request: gr.Request, *values: Any) -> list[Update]:
            try:
                text = await action(request, *values)
            except ApiProblem as refusal:
                return [*await self._everything(request, problem(refusal.message)), *[gr.skip() for _ in emptied]]
            return [*await self._everything(request, done(text)), *["" for _ in emptied]]

        # Gradio hands the request to a parameter by its annotation and the inputs to the rest.
        button.click(handle, inputs, [*self.outputs, *emptied], **EVENT)

    async def show(self, request: gr.Request) -> list[Update]:
        """The page as it is when it is entered."""
        return await self._everything(request, "")

    async def create_user(self, request: gr.Request, name: str, display_name: str, role: str) -> str:
        """Make an account with a password that the API makes and this answer tells once."""
        body = {"name": name, "display_name": display_name, "role": role}
        made = await self._client.change(request, "POST", "/api/users", body)
        return f"{made['user']['name']} may sign in now." + _told(made["password"])

    async def change_user(self, request: gr.Request, user_id: str | None, role: str | None, is_active: bool) -> str:
        """Set the role and whether the account is in use."""
        body: dict[str, Any] = {"role": _chosen(role, "a role"), "is_active": is_active}
        changed = await self._client.change(request, "PATCH", f"/api/users/{_chosen(user_id, 'a user')}", body)
        return f"{changed['user']['name']} is saved."

    async def reset_password(self, request: gr.Request, user_id: str | None) -> str:
        """Have a new password made, which is told once."""
        path = f"/api/users/{_chosen(user_id, 'a user')}"
        changed = await self._client.change(request, "PATCH", path, {"reset_password": True})
        return f"{changed['user']['name']} has a new password." + _told(changed["password"])

    async def describe_user(self, request: gr.Request, user_id: str | None) -> list[Update]:
        """Fill the form with what the chosen user is now."""
        try:
            users = (await self._client.get(request, "/api/users"))["users"]
        except ApiProblem:
            # The list beside this form says why; the form stays as it is.
            return [gr.skip(), gr.skip()]
        chosen = next((user for user in users if user["id"] == user_id), None)
        return [gr.skip(), gr.skip()] if chosen is None else [chosen["role"], chosen["is_active"]]

    async def create_project(self, request: gr.Request, name: str) -> str:
        """Make a project without members."""
        made = await self._client.change(request, "POST", "/api/projects", {"name": name})
        return f"Project {made['name']} is there. Add its members."

    async def add_member(self, request: gr.Request, project_id: str | None, user_id: str | None) -> str:
        """Let a user into a project."""
        path = f"/api/projects/{_chosen(project_id, 'a project')}/members/{_chosen(user_id, 'a user')}"
        await self._client.change(request, "PUT", path)
        return "The member is added."

    async def remove_member(self, request: gr.Request, project_id: str | None, user_id: str | None) -> str:
        """End a membership."""
        path = f"/api/projects/{_chosen(project_id, 'a project')}/members/{_chosen(user_id, 'a user')}"
        await self._client.change(request, "DELETE", path)
        return "The member is removed."

    async def _everything(self, request: gr.Request, notice: str) -> list[Update]:
        try:
            permissions = (await self._client.get(request, "/api/session"))["permissions"]
            manages_users = Permission.MANAGE_ACCOUNTS.value in permissions
            manages_projects = Permission.MANAGE_PROJECTS.value in permissions
            sees_system = Permission.SEE_SYSTEM.value in permissions
            users = (await self._client.get(request, "/api/users"))["users"] if manages_users else []
            projects = await self._projects_with_members(request) if manages_projects else []
            report = await self._client.get(request, "/api/system") if sees_system else None
        except ApiProblem as refusal:
            return [problem(refusal.message), *[gr.skip() for _ in self.outputs[1:]]]
        user_choices = [(f"{user['display_name'] or user['name']} ({user['name']})", user["id"]) for user in users]
        return [
            notice,
            # Gradio shows the first tab also to whom it is hidden from.
            gr.skip() if manages_users else gr.update(selected="system"),
            gr.update(visible=manages_users),
            _user_table(users),
            gr.update(choices=user_choices),
            gr.update(visible=manages_projects),
            _project_table(projects),
            gr.update(choices=[(project["name"], project["id"]) for project in projects]),
            gr.update(choices=user_choices),
            gr.update(visible=sees_system),
            _system_table(report),
        ]

    async def _projects_with_members(self, request: gr.Request) -> list[dict[str, Any]]:
        projects: list[dict[str, Any]] = (await self._client.get(request, "/api/projects"))["projects"]
        for project in projects:
            project["members"] = (await self._client.get(request, f"/api/projects/{project['id']}/members"))["members"]
        return projects


def _chosen(value: str | None, what: str) -> str:
    if not value:
        raise ApiProblem("invalid_request", f"Choose {what} first.")
    return value


def _told(password: str | None) -> str:
    return f" The password, shown this once: {password}" if password else ""


def _user_table(users: list[dict[str, Any]]) -> str:
    rows = [
        [
            user["name"],
            user["display_name"],
            user["role"],
            ("yes" if user["is_active"] else "no") + (" (sample)" if user["is_sample"] else ""),
        ]
        for user in users
    ]
    return table(["Name", "Display name", "Role", "May sign in"], rows, empty="No users.")


def _project_table(projects: list[dict[str, Any]]) -> str:
    rows = [
        [
            project["name"] + (" (demo)" if project["is_demo"] else ""),
            ", ".join(member["name"] for member in project["members"]) or "nobody",
        ]
        for project in projects
    ]
    return table(["Project", "Members"], rows, empty="No projects yet.")


def _system_table(report: dict[str, Any] | None) -> str:
    words = {"ok": "well", "absent": "not there", "problem": "PROBLEM"}
    rows = [
        [
            finding["name"],
            words[finding["state"]],
            ", ".join(text for text in (finding["body"], finding["detail"]) if text not in ("", "none")),
            finding["mend"],
        ]
        for finding in (report or {}).get("findings", [])
    ]
    return table(["Part", "State", "In use", "Mend"], rows, empty="Nothing was examined.")
