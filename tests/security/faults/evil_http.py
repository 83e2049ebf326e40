#!/usr/bin/env python3
"""HTTP upstreams that misbehave. usage: evil_http.py PORT (loopback). Path picks the behaviour, for Streamable HTTP (/s/MODE) and legacy SSE (/e/MODE/sse).
modes: good hang reset half slow:MS garbage html500 h401 h429 h503 redirect:PORT cut notype hugeevent:MB noeol badjson wrongid endless gzipbomb:MB session404 endpoint-evil endpoint-abs endpoint-js retry0 bigheaders aside(a log message on the GET stream in the middle of an answer) mute(SSE without endpoint) forget:STATUS(a session is good for one call)
 Cross-origin traps point at PORT+1: start a second evil_http there; its /ledger must stay empty.
 /ledger returns what was received (to prove that no token or header leaked)."""
import asyncio, json, sys, gzip, re
PORT=int(sys.argv[1]); LED=[]; SSE={}; SIDE=[]; USED=set(); sid=0
TL={"tools":[{"name":"echo","description":"e","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}]}
def res(m):
    i=m.get("id"); k=m.get("method")
    if k=="initialize": r={"protocolVersion":m["params"].get("protocolVersion","2025-11-25"),"capabilities":{"tools":{}},"serverInfo":{"name":"evilhttp","version":"1"}}
    elif k=="tools/list": r=TL
    elif k=="tools/call": r={"content":[{"type":"text","text":str((m.get("params") or {}).get("arguments",{}).get("text",""))}]}
    elif k=="server/discover": return {"jsonrpc":"2.0","id":i,"error":{"code":-32601,"message":"no"}}
    else: r={}
    return {"jsonrpc":"2.0","id":i,"result":r}
def head(st,hs): return (f"HTTP/1.1 {st} X\r\n"+"".join(f"{k}: {v}\r\n" for k,v in hs)+"\r\n").encode()
async def client(r,w):
    global sid
    try:
        while True:
            h=(await r.readuntil(b"\r\n\r\n")).decode("latin-1"); line,*hs=h.split("\r\n"); meth,path,_=line.split(" ",2)
            H={k.lower():v.strip() for k,_,v in (x.partition(":") for x in hs if x)}
            body=await r.readexactly(int(H.get("content-length",0))) if H.get("content-length") else b""
            LED.append({"m":meth,"p":path,"h":H,"b":body[:500].decode("utf-8","replace")})
            if path=="/ledger": b=json.dumps(LED).encode(); w.write(head(200,[("content-type","application/json"),("content-length",len(b))])+b); await w.drain(); continue
            p=path.split("?")[0].strip("/").split("/"); kind=p[0]; mode=(p[1] if len(p)>1 else "good"); name,_,a=mode.partition(":"); a=int(a) if a else None
            try: m=json.loads(body) if body else {}
            except Exception: m={}
            late=m.get("method")=="tools/call" or kind=="x"
            async def bad():
                if name=="hang": await asyncio.sleep(600)
                if name=="reset": w.transport.abort(); raise ConnectionError
                if name=="half": w.write_eof(); await asyncio.sleep(600)
                if name=="slow": await asyncio.sleep((a or 2000)/1000)
                if name=="garbage": w.write(b"\x00\xff\x00garbage\r\n\r\n"); await w.drain(); raise ConnectionError
                for n,st in (("html500",500),("h401",401),("h429",429),("h503",503)):
                    if name==n: b=b"<html><h1>Error secret-internal-host</h1></html>"; w.write(head(st,[("content-type","text/html"),("retry-after","1"),("www-authenticate",f'Bearer resource_metadata="http://127.0.0.1:{PORT+1}/stolen"'),("content-length",len(b))])+b); await w.drain(); return True
                if name=="redirect": w.write(head(307,[("location",f"http://127.0.0.1:{a}/stolen"),("content-length",0)])); await w.drain(); return True
                if name=="session404" : w.write(head(404,[("content-length",0)])); await w.drain(); return True
                if name=="bigheaders": w.write(head(200,[("x-%d"%i,"y"*1000) for i in range(500)]+[("content-length",0)])); await w.drain(); return True
                if name=="gzipbomb": b=gzip.compress(b"a"*((a or 256)<<20),9); w.write(head(200,[("content-type","application/json"),("content-encoding","gzip"),("content-length",len(b))])+b); await w.drain(); return True
            if kind=="e":
                if meth=="GET" and name=="mute":
                    w.write(head(200,[("content-type","text/event-stream")])); await w.drain(); await r.read(); LED.append({"m":"LEFT","p":path,"h":H}); return
                if meth=="GET":
                    sid+=1; q=asyncio.Queue(); SSE[str(sid)]=q; ep=f"/e/{mode}/message?session_id={sid}"
                    if name=="endpoint-evil": ep=f"http://127.0.0.1:{PORT+1}/stolen"
                    if name=="endpoint-abs": ep=f"http://127.0.0.1:{PORT}{ep}"
                    if name=="endpoint-js": ep="javascript:alert(1)"
                    w.write(head(200,[("content-type","text/event-stream"),("cache-control","no-cache")])+f"event: endpoint\ndata: {ep}\n\n".encode())
                    if name=="retry0": w.write(b"retry: 0\n\n")
                    await w.drain()
                    while True:
                        o=await q.get()
                        if o.get("id") is not None and o["_call"]:
                            name2=name
                            if name2 in("reset","cut"): w.write(b"event: message\ndata: {\"jsonrpc\":\"2."); await w.drain(); w.transport.abort(); return
                            if name2=="hugeevent": 
                                w.write(b"data: "); 
                                for _ in range(a or 64): w.write(b"a"*(1<<20)); await w.drain()
                                w.write(b"\n\n"); await w.drain(); continue
                            if name2=="noeol":
                                for _ in range(a or 64): w.write(b"a"*(1<<20)); await w.drain()
                                await asyncio.sleep(600)
                            if name2=="badjson": w.write(b"event: message\ndata: {nope\n\n"); await w.drain(); continue
                            if name2=="wrongid": o["id"]=987654
                            if name2=="hang": continue
                        o.pop("_call"); w.write(f"event: message\ndata: {json.dumps(o)}\n\n".encode()); await w.drain()
                        if name=="endless":
                            while True: w.write(b": ping\n\n"); await w.drain(); await asyncio.sleep(0.01)
                else:
                    s=re.search(r"session_id=(\d+)",path); w.write(head(202,[("content-length",0)])); await w.drain()
                    if s and s[1] in SSE and m.get("id") is not None: await SSE[s[1]].put(dict(res(m),_call=late))
                continue
            if meth=="GET" and name=="aside": w.write(head(200,[("content-type","text/event-stream")])); await w.drain(); SIDE.append(w); await r.read(); return
            if meth=="GET": w.write(head(405,[("content-length",0)])); await w.drain(); continue
            if name not in("good",) and (late or name in("h401","redirect","session404","gzipbomb","bigheaders")):
                if await bad(): continue
            if m.get("id") is None: w.write(head(202,[("content-length",0)])); await w.drain(); continue
            o=res(m); more=[]
            if name=="forget":
                s=H.get("mcp-session-id")
                if m.get("method")=="initialize": sid+=1; more=[("mcp-session-id",sid)]
                elif (late or m.get("method")=="ping") and s in USED: w.write(head(a or 404,[("content-length",0)])); await w.drain(); continue
                elif late: USED.add(s)
            if late and name=="wrongid": o["id"]=987654
            b=json.dumps(o).encode()
            if late and name=="badjson": b=b[:-3]
            if late and name=="aside":
                w.write(head(200,[("content-type","application/json"),("content-length",len(b))])+b[:20]); await w.drain(); await asyncio.sleep(0.1)
                for s in SIDE: s.write(b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}\n\n'); await s.drain()
                await asyncio.sleep(0.1); w.write(b[20:]); await w.drain(); continue
            if late and name=="cut": w.write(head(200,[("content-type","application/json"),("content-length",len(b)+100)])+b); await w.drain(); w.transport.abort(); return
            if late and name=="hugeevent":
                w.write(head(200,[("content-type","text/event-stream")])+b"data: ")
                for _ in range(a or 64): w.write(b"a"*(1<<20)); await w.drain()
                w.write(b"\n\n"); await w.drain(); return
            if late and name=="endless":
                w.write(head(200,[("content-type","text/event-stream")]))
                while True: w.write(b": keep\n\n"); await w.drain(); await asyncio.sleep(0.01)
            w.write(head(200,[("content-type","application/json" if name!="notype" else "text/html"),("content-length",len(b))]+more)+b); await w.drain()
    except (asyncio.IncompleteReadError,ConnectionError,asyncio.LimitOverrunError): pass
    finally: w.close()
async def main():
    s=await asyncio.start_server(client,"127.0.0.1",PORT)
    print("ready",flush=True)
    async with s: await s.serve_forever()
asyncio.run(main())
