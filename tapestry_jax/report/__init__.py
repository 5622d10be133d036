"""Tables that explain a plan, and what it says beside another one.

Read `steps`, what is said of one step, then `explain`; `table` lays it out, `placed` says where things go. Two plans
are compared by `diff`, a plan with what it might be by `why`; `changed` is what two prices do not share, and `weighed`
what a search passed over. `page` is a plan as a page for a browser.
"""
